"""The published models and voices of Pocket TTS: languages, voices, and files on the hub.

Reads the configuration files that the package `pocket-tts` contains, without importing it: that
would load torch, which the server process does without.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voiceagent_tts.errors import CheckpointError, InvalidRequestError
from voiceagent_tts.extras import install_hint
from voiceagent_tts.seam.events import Gender, VoiceDetails
from voiceagent_tts.text.language import normalize_language

if TYPE_CHECKING:
    from voiceagent_tts.settings.engine import EngineSettings

LANGUAGE_MODELS = ("english", "french", "german", "portuguese", "italian", "spanish", "dutch")
"""The models of 100 million parameters; `_24l` after a language but English names a larger one."""

GATED_PAGE = "https://huggingface.co/kyutai/pocket-tts"
"""Page on which an account gets access to the weights that can clone voices."""

_INSTALL = install_hint("server", "espeak", "pocket")
_SUFFIXES = (".yaml", ".yml")
_HUB_SCHEME = "hf://"

_VOICES: dict[str, tuple[str, Gender]] = {
    "alba": ("en", "female"), "anna": ("en", "female"), "azelma": ("en", "female"),
    "bill_boerst": ("en", "male"), "caro_davy": ("en", "female"), "charles": ("en", "male"),
    "cosette": ("en", "female"), "eponine": ("en", "female"), "eve": ("en", "female"),
    "fantine": ("en", "female"), "george": ("en", "male"), "jane": ("en", "female"),
    "javert": ("en", "male"), "jean": ("en", "male"), "marius": ("en", "male"),
    "mary": ("en", "female"), "michael": ("en", "male"), "paul": ("en", "male"),
    "peter_yearsley": ("en", "male"), "stuart_bell": ("en", "male"), "vera": ("en", "female"),
    "daan": ("nl", "male"), "estelle": ("fr", "female"), "giovanni": ("it", "male"),
    "juergen": ("de", "male"), "lola": ("es", "female"), "rafael": ("pt", "male"),
}  # fmt: skip
"""Language and gender of the published voices; the first voice of a language is its default.

Source: the README and `default_parameters` of pocket-tts 4.0.1 for names, languages and defaults;
the genders are those of the names."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository on Hugging Face, at a commit."""

    repo: str
    path: str
    revision: str | None


@dataclass(frozen=True, slots=True)
class Weights:
    """The files that a model is loaded from; those in local folders are left out.

    Attributes:
        shared: files that every use needs, such as the tokenizer.
        cloning: weights that can also clone voices, which need an account with access.
        plain: weights without cloning, for everyone.
    """

    shared: tuple[HubFile, ...]
    cloning: HubFile | None
    plain: HubFile | None


def models_of(settings: "EngineSettings") -> tuple[str, ...]:
    """Return the models that the settings name, or the usual one."""
    return settings.models or ("english",)


def is_installed() -> bool:
    """Whether the package `pocket-tts` is installed."""
    return importlib.util.find_spec("pocket_tts") is not None


def is_published(model: str) -> bool:
    """Whether `model` is a name of a published model, not the path of a configuration file."""
    return not model.endswith(_SUFFIXES)


def is_known(model: str) -> bool:
    """Whether the installed package has a model of this name."""
    try:
        return is_published(model) and config_path(model).is_file()
    except CheckpointError:
        return False


def model_key(model: str) -> str:
    """Return the name under which clones store what belongs to a model."""
    return Path(model).stem if not is_published(model) else model


def language_of(model: str) -> str:
    """Return the code of a model's language, which its name begins with: `french_24l` is `fr`.

    Raises:
        InvalidRequestError: the name does not begin with a language.
    """
    return normalize_language(model_key(model).partition("_")[0])


def voices_for(models: Sequence[str]) -> tuple[VoiceDetails, ...]:
    """Return the published voices, the default voice of the first model's language first.

    A model that is not published has none: its states would be those of other weights.
    """
    languages = [language_of(model) for model in models if is_published(model)]
    if not languages:
        return ()
    details = [VoiceDetails(name, "speaker", *known) for name, known in _VOICES.items()]
    return tuple(sorted(details, key=lambda voice: voice.language != languages[0]))


def weights_of(model: str) -> Weights:
    """Return the hub's files of a model.

    Raises:
        CheckpointError: there is no such model, or `pocket-tts` is not installed.
    """
    import yaml  # comes with pocket-tts's own dependencies

    try:
        config: dict[str, Any] = yaml.safe_load(config_path(model).read_text("utf-8"))
        tokenizer = config["flow_lm"]["lookup_table"]["tokenizer_path"]
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        raise CheckpointError(
            f"{model}: expected a configuration file of Pocket TTS; cannot read it ({error!r})"
        ) from None
    return Weights(
        tuple(file for file in [parse_hub_file(tokenizer)] if file is not None),
        parse_hub_file(config.get("weights_path")),
        parse_hub_file(config.get("weights_path_without_voice_cloning")),
    )


def config_path(model: str) -> Path:
    """Return the configuration file of a model: the package's own, or the one that was named.

    Raises:
        CheckpointError: there is no such model, or `pocket-tts` is not installed.
    """
    if not is_published(model):
        if not Path(model).is_file():
            raise CheckpointError(f"{model}: expected a configuration file, got no such file")
        return Path(model)
    package = importlib.util.find_spec("pocket_tts")
    if package is None or package.origin is None:
        raise CheckpointError(f"engine pocket: the package 'pocket-tts' is missing; {_INSTALL}")
    folder = Path(package.origin).parent / "config"
    path = folder / f"{model}.yaml"
    if "/" in model or not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
        raise CheckpointError(
            f"expected a model of Pocket TTS, got {model[:64]!r}; known are {known}, and paths of "
            "configuration files that end in .yaml"
        )
    return path


def parse_hub_file(address: str | None) -> HubFile | None:
    """Parse `hf://OWNER/NAME/PATH[@REVISION]`; None for anything else."""
    if address is None or not address.startswith(_HUB_SCHEME):
        return None
    owner, name, path = address.removeprefix(_HUB_SCHEME).split("/", 2)
    path, _, revision = path.partition("@")
    return HubFile(f"{owner}/{name}", path, revision or None)


def check_models(models: Sequence[str]) -> None:
    """Check that each model exists, and that each speaks another language.

    Raises:
        CheckpointError: there is no such model, or `pocket-tts` is not installed.
        InvalidRequestError: two models speak one language, or a name has no language.
    """
    languages: dict[str, str] = {}
    for model in models:
        config_path(model)
        other = languages.setdefault(language_of(model), model)
        if other != model:
            raise InvalidRequestError(
                f"expected one model for each language, got {other} and {model}; leave one out"
            )
