# Every target is one call of ops/dev.py (standard library only); without make: python3 ops/dev.py demo
PYTHON ?= python3
.DEFAULT_GOAL := help
.PHONY: help demo up down logs status test check docs site bench bench-prep eval-mini stack-test chaos clean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1 ## /p' $(MAKEFILE_LIST) | awk -F' ## ' '{ printf "%-20s %s\n", $$1, $$2 }'

demo: ## set up, start everything, ask the sample pictures, print the answers, stop everything
	@$(PYTHON) ops/dev.py demo

up: ## set up, start everything and stay up (PHOTOCALL_PORT moves it)
	@$(PYTHON) ops/dev.py up

down: ## stop what `make up` started
	@$(PYTHON) ops/dev.py down

logs: ## show the log of `make up`, following it in a terminal
	@$(PYTHON) ops/dev.py logs

status: ## say what runs and how it is
	@$(PYTHON) ops/dev.py status

test: ## set up and run ruff, mypy and the whole suite
	@$(PYTHON) ops/dev.py test

check: ## ruff and mypy only
	@$(PYTHON) ops/dev.py check

docs: ## write the generated parts of the documents
	@$(PYTHON) ops/dev.py docs

site: ## build the documentation as a site into build/site
	@$(PYTHON) ops/dev.py site

bench: ## time one picture with four questions, 20 questions on a picture, and where the time goes
	@$(PYTHON) ops/dev.py bench

bench-prep: ## time preparing pictures beside plain Pillow, per core; say what memory it takes
	@$(PYTHON) ops/dev.py bench-prep

eval-mini: ## measure models/mini on held-out questions through the engine
	@$(PYTHON) ops/dev.py eval-mini

stack-test: ## bring up docker-compose.yml on a real Docker Engine, break it, ask it, take it down
	@$(PYTHON) ops/dev.py stack-test

chaos: ## kill -9 everything once under load and audit what is left (SEED=n; DURATION=3600 for an hour)
	@$(PYTHON) ops/dev.py chaos

clean: ## stop everything and delete .venv, all state and all caches
	@$(PYTHON) ops/dev.py clean
