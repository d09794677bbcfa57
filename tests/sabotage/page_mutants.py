"""Mutants of what the page promises: who can see it, that nothing on it runs, that it is bounded and true."""

from sabotage.mutants import SHELL, Mutant

__all__ = ["PAGE_MUTANTS"]

PAGES = "tests/unit/page/test_pages.py"
ADDRESS = "tests/unit/page/test_page_address.py"
TREE = "tests/unit/audit/test_tree_answers.py"

PAGE_MUTANTS = (
    Mutant(
        "what engines say not escaped",
        f"{SHELL}/page/rendering.py",
        "autoescape=True",
        "autoescape=False",
        f"{PAGES}::test_nothing_that_an_engine_says_becomes_markup",
    ),
    Mutant(
        "any name answered",
        f"{SHELL}/page/handler.py",
        'return name == "localhost" or',
        "return True or",
        f"{ADDRESS}::test_a_name_that_was_pointed_here_is_not",
    ),
    Mutant(
        "page served to other machines",
        f"{SHELL}/web/address.py",
        "if not address.is_loopback or",
        "if",
        f"{ADDRESS}::test_everything_else_is_refused_with_a_typed_error",
    ),
    Mutant(
        "any number of questions at once",
        f"{SHELL}/page/told.py",
        "BoundedSemaphore(_READERS)",
        "BoundedSemaphore(1 << 16)",
        f"{TREE}::test_the_page_has_few_readers",
    ),
    Mutant(
        "a branch of the tree without an end",
        f"{SHELL}/audit/questions/tree.py",
        "run.c.length < RUN, ",
        "",
        f"{TREE}::test_a_branch_ends_at_a_boundary_and_after_so_many_blocks",
    ),
    Mutant(
        "oldest state taken for the newest",
        f"{SHELL}/audit/questions/kept.py",
        "told.seq.desc(), told.number.desc()",
        "told.seq, told.number",
        f"{TREE}::test_the_tree_holds_what_a_replay_holds",
    ),
    Mutant(
        "a prompt resumes over a hole",
        f"{SHELL}/audit/questions/resumes.py",
        "if parents[node] in found and held",
        "if held",
        f"{TREE}::test_the_tree_marks_every_boundary_and_whether_a_prompt_can_resume_there[4]",
    ),
)
