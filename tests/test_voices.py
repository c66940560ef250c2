"""Voice names, the workers that speak them, and the folder of cloned voices."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from voiceagent_tts.clones import (
    CloneBook,
    SeenClones,
    VoiceFolder,
    clone_name,
    own_name,
    stored_name,
)
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.clones.clone_files import delete_file, write_file
from voiceagent_tts.seam.events import Capabilities, VoiceDetails
from voiceagent_tts.server.voice_lists import listed
from voiceagent_tts.voices import (
    ALIASES,
    Voice,
    VoiceBook,
)


@pytest.fixture
def folder(tmp_path: Path) -> VoiceFolder:
    """A folder that does not exist yet."""
    return VoiceFolder(tmp_path / "kept" / "voices")


def worker(*voices: str, clone_width: int | None = None) -> Capabilities:
    return Capabilities(
        "qwen3", "tiny", False, ("token",), ("en",), voices, 4, clone_width=clone_width
    )


@pytest.mark.parametrize("name", ["anna", "Jürgen 2", "小明", "a", "m.o-d_e l", "x" * 64])
def test_ordinary_names_are_names(name: str) -> None:
    """Letters of any script, digits and a few signs form a voice name, in lower case."""
    assert clone_name(name) == name.casefold()


@pytest.mark.parametrize(
    "name",
    [
        "", " ", ".", "..", "../anna", "/etc/passwd", "a/b", "a\\b", "C:anna", "anna\0", "an\nna",
        " anna", "anna.", "-anna", "anna+f1", "x" * 65, "~", "a*", "\ud800",
        pytest.param("x" * 10**6, id="long"),
    ],
)  # fmt: skip
def test_what_could_be_a_path_is_no_name(name: str, folder: VoiceFolder) -> None:
    """A name cannot be a path out of the folder, or contain unusual characters."""
    with pytest.raises(InvalidRequestError, match="expected a voice's name") as refused:
        folder.file(name)
    assert refused.value.code is ErrorCode.INVALID_VOICE
    assert name not in folder
    assert not folder.path.exists()


def test_a_name_too_long_for_a_file_is_no_voice(folder: VoiceFolder) -> None:
    """A name of four-byte letters may be legal and still too long for a file."""
    write_file(folder.file("anna"), b"prompt")
    book = CloneBook({"a": worker(clone_width=8)}, lambda _: SeenClones(folder))
    with pytest.raises(InvalidRequestError, match="list` show them") as refused:
        book.resolve("\N{MATHEMATICAL BOLD SMALL A}" * 64)
    assert refused.value.code is ErrorCode.INVALID_VOICE


def test_a_voice_is_kept_replaced_and_removed(folder: VoiceFolder) -> None:
    assert folder.names() == []
    write_file(folder.file("Anna"), b"first")
    assert "ANNA" in folder
    before = folder.version("anna")
    assert folder.version("Anna") == before
    write_file(folder.file("anna"), b"other")
    assert folder.read("Anna") == b"other"
    assert folder.version("anna") != before
    assert folder.names() == ["anna"]
    delete_file(folder.file("anna"))
    assert "anna" not in folder
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize("call", ["read", "version"])
def test_a_reader_of_an_unknown_voice_is_told_no_other(folder: VoiceFolder, call: str) -> None:
    """Workers read for every key, and the names may be another's; the error says where they are."""
    write_file(folder.file("anna"), b"prompt")
    with pytest.raises(InvalidRequestError, match="'nobody'; GET /v1/audio/voices") as unknown:
        getattr(folder, call)("nobody")
    assert "anna" not in unknown.value.message


def test_other_files_are_no_voices(folder: VoiceFolder) -> None:
    """Files of an interrupted write, or of other kinds, are not offered as voices."""
    write_file(folder.file("anna"), b"prompt")
    for name in (".anna.0123.part", "notes.txt", ".hidden.safetensors", "a+b.safetensors"):
        (folder.path / name).touch()
    assert folder.names() == ["anna"]


def test_clones_come_and_go_while_it_runs(folder: VoiceFolder) -> None:
    workers = {"preset": worker("Vivian"), "base": worker(clone_width=64)}
    book = CloneBook(workers, lambda _: SeenClones(folder))
    assert book.names() == ["Vivian"]
    write_file(folder.file("Anna"), b"prompt")
    assert book.names() == ["Vivian", "anna"]
    assert book.resolve("ANNA") == Voice("anna", "base")
    delete_file(folder.file("anna"))
    with pytest.raises(InvalidRequestError, match="known are Vivian"):
        book.resolve("anna")


def test_a_clone_comes_before_a_model_s_own_voice(folder: VoiceFolder) -> None:
    """A clone that was stored under a preset's name replaces it until it is removed."""
    write_file(folder.file("vivian"), b"prompt")
    workers = {"base": worker(clone_width=64), "preset": worker("Vivian")}
    book = CloneBook(workers, lambda _: SeenClones(folder))
    assert book.resolve("Vivian") == Voice("vivian", "base")
    assert book.names() == ["Vivian"]
    delete_file(folder.file("vivian"))
    assert book.resolve("vivian") == Voice("Vivian", "preset")


def test_the_first_clone_is_the_default_of_a_base_model(folder: VoiceFolder) -> None:
    """A server with only clones uses the first as default; without any it says what to do."""
    book = CloneBook({"base": worker(clone_width=64)}, lambda _: SeenClones(folder))
    with pytest.raises(InvalidRequestError, match="voices add"):
        book.resolve(None)
    write_file(folder.file("bert"), b"prompt")
    write_file(folder.file("anna"), b"prompt")
    assert book.resolve(None) == Voice("anna", "base")


def test_a_clone_goes_to_the_model_of_its_size(folder: VoiceFolder) -> None:
    workers = {
        "preset": worker("Vivian"),
        "small": worker(clone_width=1024),
        "large": worker(clone_width=2048),
        "large too": worker(clone_width=2048),
    }
    book = CloneBook(workers, lambda _: SeenClones(folder))
    for name, width in (("anna", 2048), ("bert", 1024), ("carl", 64)):
        write_file(folder.file(name), save({"speaker_embedding": torch.zeros(width)}))
    spoken_by = {name: book.resolve(name).worker for name in folder.names()}
    assert spoken_by == {"anna": "large", "bert": "small", "carl": "small"}


@pytest.mark.parametrize(
    "stored",
    [
        b"", b"no safetensors", struct.pack("<Q", 2**63), struct.pack("<Q", 2) + b"[]",
        *(
            struct.pack("<Q", len(header)) + header
            for header in (
                b'{"speaker_embedding": 5}',
                b'{"speaker_embedding": {"shape": [[64]]}}',
                b'{"speaker_embedding": {"shape": [64, 64]}}',
            )
        ),
    ],
)  # fmt: skip
def test_a_damaged_clone_goes_to_the_first_model(folder: VoiceFolder, stored: bytes) -> None:
    """A file without a readable width goes to an engine, which reports what is wrong."""
    workers = {"small": worker(clone_width=64), "large": worker(clone_width=128)}
    book = CloneBook(workers, lambda _: SeenClones(folder))
    write_file(folder.file("anna"), stored)
    assert book.resolve("anna") == Voice("anna", "small")


SPEAKERS = (
    VoiceDetails("Ryan", "speaker", "en", "male"),
    VoiceDetails("Vivian", "speaker", "zh", "female"),
    VoiceDetails("Serena", "speaker", "zh", "female"),
)


def speakers(clone_width: int | None = None) -> Capabilities:
    names = tuple(each.name for each in SPEAKERS)
    return replace(worker(*names, clone_width=clone_width), voice_details=SPEAKERS)


def test_a_voice_of_a_model_comes_before_a_stand_in() -> None:
    """The names of Qwen3-TTS's speakers are theirs where they are, in any letter case."""
    book = VoiceBook({"a": worker("Anyone"), "b": speakers()})
    assert book.resolve("RYAN") == Voice("Ryan", "b")
    assert "ryan" not in {each.details.name for each in listed(book)}
    assert VoiceBook({"a": worker("Anyone")}).resolve("Ryan") == Voice("Anyone", "a")


@pytest.mark.parametrize("alias", sorted(ALIASES.keys() - {s.name.casefold() for s in SPEAKERS}))
def test_documented_names_are_voices_of_every_server(alias: str) -> None:
    """`default`, `nova` and the others stand for a voice of their gender, which is listed."""
    book = VoiceBook({"a": worker("Anyone"), "b": speakers()})
    assert book.resolve(alias) == Voice("Anyone", "a")
    book = VoiceBook({"a": speakers()})
    voice = book.resolve(alias.upper())
    shown = {each.details.name: each for each in listed(book)}
    assert shown[alias].alias_of == voice.name
    assert shown[alias].details.kind == "alias"
    assert alias == "default" or shown[alias].details.gender == ALIASES[alias]
    assert book.resolve("default") == book.resolve(None) == Voice("Ryan", "a")
    assert next(iter(shown)) == "Ryan"


def test_a_voice_that_needs_a_description_is_the_default_only_if_there_is_no_other(
    folder: VoiceFolder,
) -> None:
    """Clients that name no voice, or `nova`, describe none; a clone speaks for them."""
    design = replace(worker("designed"), needs_instruct=True, takes_instruct=True)
    workers = {"design": design, "base": worker(clone_width=64)}
    book = CloneBook(workers, lambda _: SeenClones(folder))
    assert book.names() == ["designed"]
    assert book.resolve("nova") == book.resolve(None) == Voice("designed", "design")
    write_file(folder.file("anna"), b"prompt")
    assert book.names() == ["anna", "designed"]
    for name in (None, *ALIASES):
        assert book.resolve(name) == Voice("anna", "base")
    assert book.resolve("designed") == Voice("designed", "design")
    assert [each.details.name for each in listed(book)][:2] == ["anna", "designed"]
    assert {each.alias_of for each in listed(book)[2:]} == {"anna"}
    preset = VoiceBook({"design": design, "preset": worker("Vivian")})
    assert preset.names() == ["Vivian", "designed"]
    assert preset.resolve("default") == Voice("Vivian", "preset")


def test_aliases_of_one_gender_are_several_voices() -> None:
    """Agents with different documented names get different voices if there are enough."""
    book = VoiceBook({"a": speakers()})
    women = {book.resolve(name).name for name, gender in ALIASES.items() if gender == "female"}
    assert women == {"Vivian", "Serena"}


def test_a_voice_comes_before_an_alias_of_its_name(folder: VoiceFolder) -> None:
    """An engine's own `nova`, or a clone of that name, takes precedence over the alias."""
    assert VoiceBook({"a": speakers(), "b": worker("nova")}).resolve("nova") == Voice("nova", "b")
    write_file(folder.file("nova"), b"prompt")
    book = CloneBook({"a": speakers(clone_width=64)}, lambda _: SeenClones(folder))
    assert book.resolve("nova") == Voice("nova", "a")
    kinds = [each.details.kind for each in listed(book) if each.details.name == "nova"]
    assert kinds == ["clone"]


def natural_and_robot() -> VoiceBook:
    """A natural voice for English, and a worker that speaks other languages too."""
    natural = replace(worker("heart"), voice_details=(VoiceDetails("heart", "speaker", "en-us"),))
    details = (
        VoiceDetails("default", "preset"),
        VoiceDetails("nova", "preset"),
        VoiceDetails("f3", "variant"),
        VoiceDetails("de", "language", "de"),
    )
    names = [each.name for each in details]
    robot = replace(worker(*names), languages=("en", "de", "zh"), voice_details=details)
    return VoiceBook({"hibari": natural, "espeak": robot})


@pytest.mark.parametrize(
    ("name", "language", "voice"),
    [
        (None, "en", Voice("heart", "hibari")),
        (None, "en-gb", Voice("heart", "hibari")),
        (None, "de", Voice("default", "espeak")),
        ("nova", "en", Voice("heart", "hibari")),
        ("nova", "de-at", Voice("nova", "espeak")),
        ("onyx", "zh", Voice("default", "espeak")),
        ("heart", "de", Voice("heart", "hibari")),
        ("f3", "en", Voice("f3", "espeak")),
        (None, "fr", Voice("heart", "hibari")),
    ],
)
def test_a_voice_that_the_client_has_not_named_speaks_its_language(
    name: str | None, language: str, voice: Voice
) -> None:
    """The first worker that speaks it gets the context; a voice that was named stays."""
    assert natural_and_robot().for_language(name, language) == voice


def many_languages() -> VoiceBook:
    """A worker whose voices speak one language each, and one that speaks the others."""
    made_for = {"af_a": "en-us", "am_b": "en-us", "bf_c": "en-gb", "ef_d": "es", "em_e": "es"}
    details = tuple(
        VoiceDetails(name, "speaker", language, "female" if name[1] == "f" else "male")
        for name, language in made_for.items()
    )
    natural = replace(
        worker(*made_for),
        languages=("en", "en-gb", "en-us", "es"),
        voice_details=details,
        has_monolingual_voices=True,
    )
    return VoiceBook({"kokoro": natural, "espeak": replace(worker("x"), languages=("de",))})


@pytest.mark.parametrize(
    ("name", "language", "voice"),
    [
        (None, "en", "af_a"),
        (None, "en-us", "af_a"),
        (None, "en-gb", "bf_c"),
        (None, "en-au", "af_a"),
        (None, "es", "ef_d"),
        (None, "es-mx", "ef_d"),
        ("onyx", "es", "em_e"),
        ("nova", "es", "ef_d"),
        ("onyx", "en", "am_b"),
        ("ef_d", "en", "ef_d"),
        (None, "de", "x"),
    ],
)
def test_one_of_a_workers_voices_is_made_for_the_language(
    name: str | None, language: str, voice: str
) -> None:
    """The one of the accent and of the gender of an alias, where there is one."""
    assert many_languages().for_language(name, language).name == voice


def test_a_voice_speaks_what_it_is_made_for() -> None:
    """With the language of its accent; a voice of a worker without such a rule speaks all."""
    book = many_languages()
    monolingual = replace(
        worker(), languages=("en", "en-gb", "en-us", "es"), has_monolingual_voices=True
    )
    assert book.languages(Voice("bf_c", "kokoro"), monolingual) == ("en", "en-gb")
    assert book.languages(Voice("ef_d", "kokoro"), monolingual) == ("es",)
    anyone = replace(monolingual, has_monolingual_voices=False)
    assert book.languages(Voice("ef_d", "kokoro"), anyone) == anyone.languages


def test_a_named_timbre_does_not_hide_an_alias_of_the_default_voice() -> None:
    """A client that knows `nova` from another server gets the natural voice, once in the list."""
    book = natural_and_robot()
    assert book.resolve("nova") == book.resolve("default") == Voice("heart", "hibari")
    assert book.names() == ["heart", "f3", "de"]
    (nova,) = [each for each in listed(book) if each.details.name == "nova"]
    assert (nova.details.kind, nova.alias_of) == ("alias", "heart")
    assert book.resolve("de+nova") == Voice("de+nova", "espeak")


def test_an_unknown_name_gets_a_few_near_ones() -> None:
    """With many voices the error names the most similar ones, and says where all are listed."""
    many = (f"speaker{k}" for k in range(298))
    book = VoiceBook({"a": worker("default", *many, "anna", "announcer", "belinda")})
    with pytest.raises(InvalidRequestError) as refused:
        book.resolve("anne")
    assert "try anna;" in refused.value.message
    assert refused.value.message.endswith("`voiceagent-tts voices list` shows all 324")
    assert len(refused.value.message) < 200
    with pytest.raises(InvalidRequestError, match="try default, alloy, coral;"):
        book.resolve("零")
    for strange in ("nosuch", "af_bella"):
        with pytest.raises(InvalidRequestError, match="try default, alloy, coral;"):
            book.resolve(strange)


def test_each_key_has_names_of_its_own(folder: VoiceFolder) -> None:
    """A key's own clone comes before everyone's of its name; an admin knows others by their files.

    Ids that a file's name cannot have, or that differ in case alone, have places of their own, too.
    """
    ids = ("k", "K", "ö" * 64, "a:b")
    files = {key_id: own_name("Anna", key_id) for key_id in ids}
    assert len({name.casefold() for name in files.values()}) == len(ids)
    for number, stored in enumerate(("anna", *files.values())):
        assert folder.file(stored).stem == stored_name(stored) == stored
        write_file(folder.file(stored), bytes(number))

    def clones_of(key_id: str | None) -> SeenClones:
        own = {"anna", files.get(key_id or "")}
        return SeenClones(folder, key_id, lambda stored: key_id is None or stored in own)

    book = CloneBook({"base": worker(clone_width=64)}, clones_of)
    for number, key_id in enumerate(ids, start=1):
        seen = book.seen_by(key_id)
        assert seen.names() == ["anna"]
        voice = seen.resolve("ANNA")
        assert (voice.name, folder.read(voice.engine_name)) == ("anna", bytes(number))
        delete_file(folder.file(files[key_id]))
        assert seen.resolve("anna").engine_name == "anna"
    write_file(folder.file(files["k"]), b"")
    assert book.names() == ["anna", "anna@k"]
    assert book.resolve("Anna@K") == Voice("anna@k", "base")


@pytest.mark.parametrize(
    "name", ["anna@", "anna@../k", "@k", "anna@k@k", "anna@ö", "a@" + "k" * 33]
)
def test_other_names_are_no_files(folder: VoiceFolder, name: str) -> None:
    """The owner in a file's name is never a path."""
    with pytest.raises(InvalidRequestError, match="expected a voice's name"):
        folder.file(name)
    assert name not in SeenClones(folder, "k")


def test_a_replaced_voice_is_not_the_expected_one(folder: VoiceFolder) -> None:
    """Neither its version nor its content is given for that of the voice before."""
    write_file(folder.file("anna@k"), b"first")
    version = folder.version("anna@k")
    assert folder.version("anna@k", version) == version
    assert folder.read("anna@k", version) == b"first"
    write_file(folder.file("anna@k"), b"other")
    for look in (folder.version, folder.read):
        with pytest.raises(InvalidRequestError, match="'anna' .*open a new context") as changed:
            look("anna@k", version)
        assert changed.value.code is ErrorCode.INVALID_VOICE


def test_no_name_of_a_client_has_the_names_of_clones_read(
    folder: VoiceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands, of all keys: others' audio would wait meanwhile."""
    write_file(folder.file("anna"), b"prompt")
    monkeypatch.setattr(VoiceFolder, "names", None)
    for own in ((), ("Vivian",)):
        book = CloneBook({"base": worker(*own, clone_width=64)}, lambda _: SeenClones(folder))
        for name in ("ann", "c0ffee00-0000-4000-8000-000000000000"):
            with pytest.raises(InvalidRequestError, match="list` show them") as refused:
                book.resolve(name)
            assert ("known are Vivian" in refused.value.message) == bool(own)
