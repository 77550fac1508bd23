"""What is to be computed: operators, their shapes, data types and bytes."""
