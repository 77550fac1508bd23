# Two commands do all the set-up on a machine that has Python >= 3.11, its venv module and make:
#   make demo    the A100-over-V100 experiment: a table and a plot
#   make test    the test suite
# A Python that is not called python3: make demo PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n auto
# Measured runs, where there are any: the folder that holds validate/ and calibrate/.
MEASURED := $(or $(GPUSIM_MEASURED),../shared/measured)
MICROBENCHMARKS := $(MEASURED)/../facts/microbenchmarks.csv
# Single figures, which nothing is fitted to.
PUBLISHED := $(wildcard $(MEASURED)/published.csv $(MEASURED)/published_*.csv)
# Steps of whole models.
STEPS := $(wildcard $(MEASURED)/../end_to_end/neusight.csv $(MEASURED)/../end_to_end/nvidia_pytorch.csv)
COLLECTIVES := $(wildcard $(MEASURED)/../comm/*.csv)
# Kernels that traces recorded beside others: they teach choice and not times.
TRACES := $(wildcard $(MEASURED)/../traces/kernels.csv)
RECORDED := $(if $(TRACES),$(VENV)/traces.csv)
VECTOR_TRACES := $(wildcard $(MEASURED)/../traces/memory_bound.csv)
TABLES := deepbench_v100_fp16 deepbench_v100_fp32 apex_v100_fp16 deepbench_t4_fp16 deepbench_t4_fp32 \
	vidur_a100_fp16 vidur_a40_fp16 aiconfigurator_a100_bf16 aiconfigurator_a100_int8 neusight_linear_fp32 neusight_bmm_fp32 \
	llmservingsim_rtx3090_bf16 aiconfigurator_h200_bf16 neusight_memory_bound_fp32 neusight_short_rows_fp32 liger_vector \
	deepbench_conv neusight_conv_fp32 aiconfigurator_l40s_bf16 aiconfigurator_l40s_int8 neusight_l4_linear_fp32 neusight_l4_bmm_fp32 \
	neusight_l4_memory_bound_fp32 neusight_pascal_linear_fp32 neusight_pascal_bmm_fp32 neusight_pascal_conv_fp32 \
	neusight_pascal_memory_bound_fp32 aiconfigurator_attention aiconfigurator_attention_paged \
	aiconfigurator_attention_decode aiconfigurator_h100_fp8 aiconfigurator_h200_fp8 aiconfigurator_l40s_fp8 aiconfigurator_bmm_bf16
# Tables of MEASURED/calibrate that each architecture is calibrated on.
CALIBRATED := pascal volta turing ampere_ga100 ampere_ga10x hopper ada
MEASURED_ON_volta := deepbench_v100_fp16 deepbench_v100_fp32 apex_v100_fp16 neusight_linear_fp32 neusight_bmm_fp32
MEASURED_ON_turing := deepbench_t4_fp16 deepbench_t4_fp32 neusight_linear_fp32 neusight_bmm_fp32
MEASURED_ON_ampere_ga100 := aiconfigurator_a100_bf16 aiconfigurator_a100_int8 vidur_a100_fp16 \
	neusight_linear_fp32 neusight_bmm_fp32
MEASURED_ON_ampere_ga10x := llmservingsim_rtx3090_bf16 vidur_a40_fp16
MEASURED_ON_hopper := aiconfigurator_h200_bf16
MEASURED_ON_pascal := neusight_pascal_linear_fp32 neusight_pascal_bmm_fp32
MEASURED_ON_ada := aiconfigurator_l40s_bf16 aiconfigurator_l40s_int8 neusight_l4_linear_fp32 neusight_l4_bmm_fp32
# Tables that nothing is fitted to, for the intervals of convolutions and vector operators.
UNFITTED := deepbench_conv neusight_conv_fp32 neusight_memory_bound_fp32 neusight_l4_memory_bound_fp32 \
	neusight_pascal_conv_fp32 neusight_pascal_memory_bound_fp32
# Tables of attention: errors of those operators are stated beside a fit, which they take no part in.
ATTENTION := aiconfigurator_attention aiconfigurator_attention_paged aiconfigurator_attention_decode
# Tables of products with scales, whose kernels are vLLM's: no fit of the heuristic takes them.
SCALED := aiconfigurator_h100_fp8 aiconfigurator_h200_fp8 aiconfigurator_l40s_fp8
# Rows per table, GPU and data type, if not 30: more where there are few tables, or where 30 do not tell values apart.
ROWS_OF_volta := 250
ROWS_OF_hopper := 80
ROWS_OF_ada := 100
ROWS_OF_pascal := 40
ROWS_OF_ampere_ga10x := 200
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Hundreds of tests start a process: modules are compiled to byte code once, whatever the environment says.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help demo test test-durations test-slow test-browser capture-libraries zoo zoo-page zoo-section replay fuzz site site-serve schemas calibrate calibrate-libraries intervals generations check format bench bench-baseline readme language-models published-tokens datasheets figures dist dist-check constraints clean

help:
	@echo "make demo         install, run experiments/a100_vs_v100_gemm.yaml, print the table and the paths of the plots"
	@echo "make test         install the development tools and the libraries of captures, run the tests (make test-slow: the slow ones;"
	@echo "                  make capture-libraries: PyTorch, torchvision, timm, transformers, ONNX; make test CAPTURE=: without them)"
	@echo "make test-durations  the tests, and those that take longest into CONTRIBUTING.md"
	@echo "make test-browser run the tests of pages in headless Chromium, which it installs on Debian"
	@echo "make fuzz         10,000 damaged inputs, 1,000 damaged journals, random products; counts by outcome (SEED=n)"
	@echo "make check        lint, types, import contracts (make format: rewrite the layout)"
	@echo "make replay       record the replay corpus again, print what moved: that needs a new MODEL_VERSION"
	@echo "make site         build the documentation into dist/site (make site-serve: show it, and follow changes)"
	@echo "make schemas      write the JSON Schemas of schemas/, which editors find by a comment in a file"
	@echo "make bench        speed of predictions, beside the baseline (make bench-baseline: record it)"
	@echo "make calibrate    fit the shipped specs to the calibration half of the measured runs again; of one architecture:"
	@echo "                  make calibrate-volta, -turing, -ampere_ga100, -ampere_ga10x, -hopper, -ada, -pascal"
	@echo "make calibrate-libraries  fit what their libraries share, at the physical values of the specs"
	@echo "make intervals    state the errors of attention and scaled products beside the fits, whose values stay"
	@echo "make generations  predict architectures before their fit, by weights that older ones share"
	@echo "make readme       update the tables of the README and of docs/ (accuracy, model, speed); make calibrate and make bench come first"
	@echo "make zoo          capture the networks that a table of whole models names (TABLE=steps.csv FOLDER=models; COMPILED=yes: compiled)"
	@echo "make zoo-page     capture those of all tables, predict their rows, and write docs/zoo.md (ZOO=tables, FOLDER=models; three hours)"
	@echo "make zoo-section  those of random samples and of tables predicted anew, as a section of that page (20 minutes)"
	@echo "make language-models  predict whole requests to language models, and write docs/language_models.md how far they are off"
	@echo "make datasheets   make shipped boards again from their datasheets, and write docs/extending.md how far predictions move"
	@echo "make figures      draw the pictures of docs/ again, predict its tables of claims and of the design space, execute its notebook and tutorials"
	@echo "make dist         check what wheel and sdist hold, build both into dist/"
	@echo "make dist-check   install both into empty environments, run the demo and one of each command (PYTHONS='python3.11 python3.14':"
	@echo "                  of these the ones that are there; needs the package index)"
	@echo "make constraints  pin the newest versions of all dependencies"

demo: $(VENV)/.runtime
	$(BIN)/gpusim run a100_vs_v100_gemm

# Empty: without the libraries of captures, whose tests are skipped then.
CAPTURE ?= yes

# Compiled ahead, or several tests would compile the simulator at once.
test: $(VENV)/.dev $(if $(CAPTURE),$(VENV)/.capture)
	$(BIN)/gpusim cache compile
	$(PYTEST) -m "not slow and not browser"

# The slowest tests, listed in CONTRIBUTING.md.
test-durations: $(VENV)/.dev $(VENV)/.capture
	$(BIN)/gpusim cache compile
	$(PYTEST) -m "not slow and not browser" --junitxml=results/tests.xml
	$(BIN)/python benchmarks/slowest_tests.py results/tests.xml --write

# One process runs all tests of a file, which share predictions that take minutes. Files keep their order: those that take
# longest are not among the last.
test-slow: $(VENV)/.dev $(if $(CAPTURE),$(VENV)/.capture)
	$(BIN)/gpusim cache compile
	$(PYTEST) --dist loadfile --no-loadscope-reorder -m slow

# Debian's Chromium is installed where there is none; of others GPUSIM_CHROMIUM names the program.
test-browser: $(VENV)/.browser
	@command -v "$${GPUSIM_CHROMIUM:-chromium}" > /dev/null || (apt-get update -q && apt-get install -y -q chromium)
	$(BIN)/gpusim cache compile
	$(BIN)/python -m pytest -m browser

$(VENV)/.browser: pyproject.toml constraints.txt | $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,browser]"
	@touch $@

# What models are captured from. Several gigabytes, unless the package index has PyTorch for CPUs, which is enough.
capture-libraries: $(VENV)/.capture

$(VENV)/.capture: pyproject.toml constraints.txt | $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,capture]"
	@touch $@

# Inputs per driver of tests/fuzz; a defect is printed with an example and fails the target.
SEED ?= 1
FUZZ := documents-4000 tables-3500 commands-2000 plots-500 journals-1000 products-5000 monotone-4000 interrupts-60 kills-20

fuzz: $(addprefix fuzz-,$(FUZZ))

fuzz-%: $(VENV)/.dev
	$(BIN)/python tests/fuzz/$(word 1,$(subst -, ,$*)).py --count $(word 2,$(subst -, ,$*)) --seed $(SEED)

replay: $(VENV)/.runtime
	$(BIN)/python tests/replay/corpus.py

# Material announces its successor on every build.
export NO_MKDOCS_2_WARNING = 1

site: $(VENV)/.dev
	$(BIN)/python -m mkdocs build --strict

site-serve: $(VENV)/.dev
	$(BIN)/python -m mkdocs serve

schemas: $(VENV)/.runtime
	$(BIN)/python benchmarks/schemas.py

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# SHAPES=n: random shapes of the sweep. Both drivers are measured.
BENCH := benchmarks/bench.py --shapes $(or $(SHAPES),10000) $(wildcard $(MEASURED)/validate/aiconfigurator_a100_bf16.csv)

bench: $(VENV)/.dev
	$(BIN)/python $(BENCH)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 VECLIB_MAXIMUM_THREADS=1 \
		$(BIN)/python benchmarks/numerics.py

bench-baseline: $(VENV)/.dev
	$(BIN)/python $(BENCH) --record

# TABLE: a table of whole models, whose networks are captured into FOLDER; COMPILED=yes: those of the rows that
# torch.compile made, each at its batch.
zoo: $(VENV)/.capture
	$(BIN)/python -m benchmarks.zoo $(TABLE) -o $(FOLDER) $(if $(COMPILED),--compiled)

# Tables whose networks are captured, and where their models are.
ZOO := $(wildcard $(addprefix $(MEASURED)/../zoo/,timm_rtx3090_inference.csv timm_rtx3090_train.csv torchvision_boards.csv paddleclas.csv))
FOLDER ?= $(VENV)/zoo
# Folder of its models, by the first word of a table's name.
MODELS_OF_timm := timm
MODELS_OF_torchvision := torchvision
MODELS_OF_paddleclas := paddle-tensorrt
models_of = $(FOLDER)/$(MODELS_OF_$(firstword $(subst _, ,$(basename $(notdir $(1))))))

zoo-page: $(VENV)/.capture
	@test -n "$(ZOO)" || { echo "no tables of whole models: make zoo-page ZOO='inference.csv training.csv'" >&2; exit 2; }
	-$(BIN)/python -m benchmarks.zoo $(ZOO) -o $(FOLDER)
	mkdir -p results/zoo
	$(foreach table,$(ZOO),$(BIN)/gpusim validate $(table) --model-path $(call models_of,$(table)) --format json \
		> results/zoo/$(basename $(notdir $(table))).json.new; mv results/zoo/$(basename $(notdir $(table))).json.new \
		results/zoo/$(basename $(notdir $(table))).json;)
	$(BIN)/python benchmarks/zoo_page.py $(patsubst %.csv,results/zoo/%.json,$(notdir $(ZOO)))

# Random samples of tables, and tables that are predicted anew, as a section of that page.
LATER := $(patsubst %,results/zoo/%.csv,timm_rtx3090_versions paddleclas_sample torchvision_boards)

zoo-section: $(VENV)/.capture
	@test -n "$(ZOO)" || { echo "no tables of whole models: make zoo-section ZOO='inference.csv paddleclas.csv'" >&2; exit 2; }
	mkdir -p results/zoo
	$(BIN)/python benchmarks/zoo_sample.py $(filter %timm_rtx3090_inference.csv,$(ZOO)) --networks 40 --seed 36 \
		--where torch=1.13,2.4 -o results/zoo/timm_rtx3090_versions.csv
	$(BIN)/python benchmarks/zoo_sample.py $(filter %paddleclas.csv,$(ZOO)) --networks 25 --seed 36 -o results/zoo/paddleclas_sample.csv
	cp $(filter %torchvision_boards.csv,$(ZOO)) results/zoo
	-$(BIN)/python -m benchmarks.zoo $(LATER) -o $(FOLDER)
	$(foreach table,$(LATER),$(BIN)/gpusim validate $(table) --model-path $(call models_of,$(table)) --format json \
		> $(table:.csv=.json.new); mv $(table:.csv=.json.new) $(table:.csv=.json);)
	$(BIN)/python benchmarks/zoo_page.py --section $(LATER:.csv=.json)

readme: $(VENV)/.runtime $(RECORDED)
	$(BIN)/python benchmarks/readme.py $(addprefix --published ,$(PUBLISHED)) $(addprefix --microbenchmarks ,$(wildcard $(MICROBENCHMARKS))) \
		$(addprefix --models ,$(STEPS)) $(addprefix --collectives ,$(COLLECTIVES)) \
		$(addprefix --traces ,$(RECORDED) $(VECTOR_TRACES)) $(foreach table,$(TABLES),$(MEASURED)/validate/$(table).csv)

# Whole requests to FasterTransformer beside predicted ones, for docs/language_models.md.
REQUESTS := $(wildcard $(MEASURED)/../zoo/fastertransformer.csv)

language-models: $(VENV)/.runtime
	@test -n "$(REQUESTS)" || { echo "no table of requests: make language-models REQUESTS=requests.csv" >&2; exit 2; }
	$(BIN)/python benchmarks/generated_text.py $(REQUESTS)

# Published tokens a second beside predicted ones, on the same page, from pages of engines: TensorRT-LLM's
# docs/source/performance.md, lmdeploy's docs/en/benchmark/a100_fp16.md.
published-tokens: $(VENV)/.runtime
	@test -n "$(PAGES)" || { echo "no pages: make published-tokens PAGES='performance.md a100_fp16.md'" >&2; exit 2; }
	$(BIN)/python benchmarks/published_tokens.py $(PAGES)

# Shipped boards made again from their datasheets: how far predictions and their errors on measured rows move.
datasheets: $(VENV)/.runtime
	$(BIN)/python benchmarks/datasheet_specs.py --write $(addprefix --calibrate ,$(wildcard $(MEASURED)/calibrate))

figures: $(VENV)/.runtime
	$(BIN)/python benchmarks/figures.py $(addprefix --microbenchmarks ,$(wildcard $(MICROBENCHMARKS)))
	$(BIN)/python benchmarks/claims_page.py
	$(BIN)/python benchmarks/training_2020_page.py
	$(BIN)/python benchmarks/design_space_page.py
	$(BIN)/python benchmarks/notebook.py
	$(BIN)/python benchmarks/drawings.py
	$(BIN)/python benchmarks/tutorials.py

calibrate: $(addprefix calibrate-,$(CALIBRATED))

# Weights that all libraries share, at the physical values of the specs; the architectures are calibrated around them.
# The fits stay; errors of attention beside them are stated anew, after a change of its kernels.
intervals: $(addprefix intervals-,ampere_ga100 hopper ada)

intervals-%: $(VENV)/.runtime
	$(BIN)/gpusim calibrate --arch $* --intervals -o arch_specs/$*_fitted.yaml \
		$(foreach table,$(ATTENTION) $(SCALED),--measured $(MEASURED)/calibrate/$(table).csv)

calibrate-libraries: $(VENV)/.runtime $(RECORDED)
	mkdir -p experiments/calibration/libraries
	$(BIN)/gpusim calibrate --library nvidia -o arch_specs/libraries/nvidia_fitted.yaml $(if $(DATE),--date $(DATE)) \
		$(foreach table,$(sort $(foreach arch,$(CALIBRATED),$(MEASURED_ON_$(arch)))),--measured $(MEASURED)/calibrate/$(table).csv) \
		$(addprefix --recorded ,$(RECORDED)) --format json > experiments/calibration/libraries/nvidia.json.new
	mv experiments/calibration/libraries/nvidia.json.new experiments/calibration/libraries/nvidia.json

# Architectures predicted before their fit: weights of the choice from the tables of older ones alone, or the shipped ones
# where no table of theirs took part in that fit (ada).
OLDER_THAN_ampere_ga100 := volta turing
OLDER_THAN_hopper := volta turing ampere_ga100 ampere_ga10x

generations: $(addprefix generation-,ampere_ga100 hopper ada)

generation-%: $(VENV)/.runtime
	$(BIN)/python benchmarks/generations.py $* -o experiments/calibration/generations/$*.json \
		--older $(foreach table,$(sort $(foreach arch,$(OLDER_THAN_$*),$(MEASURED_ON_$(arch)))),$(MEASURED)/calibrate/$(table).csv) \
		--measured $(foreach table,$(MEASURED_ON_$*),$(MEASURED)/calibrate/$(table).csv)

$(VENV)/traces.csv: $(TRACES) $(wildcard gpusim/evidence/importers/*.py) | $(VENV)/.runtime
	$(BIN)/gpusim import traces $< -o $@

calibrate-%: $(VENV)/.runtime $(RECORDED)
	$(BIN)/gpusim calibrate --arch $* -o arch_specs/$*_fitted.yaml --rows $(or $(ROWS_OF_$*),30) $(if $(DATE),--date $(DATE)) \
		$(foreach table,$(MEASURED_ON_$*) $(UNFITTED) $(ATTENTION),--measured $(MEASURED)/calibrate/$(table).csv) \
		$(addprefix --recorded ,$(RECORDED)) $(addprefix --microbenchmarks ,$(wildcard $(MICROBENCHMARKS))) \
		--format json > experiments/calibration/$*.json.new
	mv experiments/calibration/$*.json.new experiments/calibration/$*.json

dist: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/release/test_distributions.py
	rm -rf dist
	$(BIN)/python -m hatchling build --directory dist

# Pythons to install for; one that is not on this machine is named and skipped.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14

dist-check: dist
	$(BIN)/python tests/release/installed.py dist $(addprefix --python ,$(PYTHONS))

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "gpusim needs Python >= 3.11; $(PYTHON) is older: make ... PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: pyproject.toml constraints.txt | $(VENV)/.python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $(VENV)/.runtime $@

# Run with the oldest Python that is supported: a newer one pins versions that it cannot install.
constraints: $(VENV)/.python
	rm -rf $(VENV).pins
	$(PYTHON) -m venv $(VENV).pins
	$(VENV).pins/bin/python -m pip install --quiet ".[browser,capture,dev]"
	{ echo "# Versions that 'make demo' and 'make test' install; written by 'make constraints'."; \
	  $(VENV).pins/bin/python -m pip freeze --exclude gpusim; } > constraints.txt
	rm -rf $(VENV).pins

clean:
	rm -rf $(VENV) dist results
