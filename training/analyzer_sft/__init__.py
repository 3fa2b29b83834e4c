"""Stage I: supervised fine-tuning of the Analyzer on labelled failures (``pivot train sft``)."""
