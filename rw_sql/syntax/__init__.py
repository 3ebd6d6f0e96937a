"""Text → statement → canonical text. No Spark here.

``parse_script(text, file=None) -> tuple[Statement, ...]`` reads statements separated by ``;``;
``render(statement) -> str`` writes one back in canonical form.
"""
