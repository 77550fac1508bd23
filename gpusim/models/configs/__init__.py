"""Models as data, made of the configurations that Hugging Face's transformers keeps beside weights."""
