"""The table of questions: silos answer each, and nothing that it says is missing or unknown."""

import pytest

from fedtct.questions import QUESTIONS, about
from fedtct.seated_silo import SeatedSilo


@pytest.mark.parametrize("question", QUESTIONS)
def test_silos_answer_it_and_it_is_known_what_that_reveals(question):
    known = about(question)
    assert callable(getattr(SeatedSilo, question))
    assert known.reveals
    assert set(known.rests_on) <= QUESTIONS.keys() - {question}


def test_nothing_is_known_of_what_is_no_question():
    assert not any(vars(about("given")).values())
