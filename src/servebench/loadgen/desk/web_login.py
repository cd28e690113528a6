"""Know how the page asks for a name and a password where `--web-login` is given (SERVEBENCH_WEB_LOGIN)."""

import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flask_login  # type: ignore[import-untyped] # it has no types
import gevent
from flask import Blueprint, redirect, request, session, url_for
from werkzeug.wrappers import Response

from servebench.core.errors import InputError

VARIABLE = "SERVEBENCH_WEB_LOGIN"
WRONG_S = 1.0
"""How long a wrong password is left waiting for its answer."""


class Login(NamedTuple):
    """Who may use the page."""

    name: str
    password: str

    def admits(self, name: str, password: str) -> bool:
        """Say whether both are right, in a time that tells nothing of how wrong they are."""
        right = hmac.compare_digest(name.encode(), self.name.encode())
        return hmac.compare_digest(password.encode(), self.password.encode()) and right


class _Visitor(flask_login.UserMixin):  # type: ignore[misc] # flask_login has no types
    """Somebody who logged in."""

    def __init__(self, name: str) -> None:
        self.id = name


def read_login(environ: Mapping[str, str]) -> Login:
    """Return name and password of SERVEBENCH_WEB_LOGIN, or of the file that SERVEBENCH_WEB_LOGIN_FILE names.

    Raises InputError, whose message holds neither, where there are none.
    """
    path = environ.get(f"{VARIABLE}_FILE")
    try:
        text = Path(path).read_text(encoding="utf-8").strip() if path else environ.get(VARIABLE, "")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{VARIABLE}_FILE {path} cannot be read: {type(error).__name__}"
        raise InputError(msg) from error
    name, colon, password = text.partition(":")
    if not name or not colon or not password:
        msg = f"--web-login wants a name and a password.\n  try: export {VARIABLE}=NAME:PASSWORD (or {VARIABLE}_FILE)"
        raise InputError(msg)
    return Login(name, password)


def install_login(ui: Any, login: Login) -> None:  # noqa: ANN401 - Locust is untyped
    """Let Locust's login page ask for this name and password; sessions end with the process."""
    ui.app.config.update(SECRET_KEY=secrets.token_bytes(32), SESSION_COOKIE_SAMESITE="Strict")
    ui.login_manager.user_loader(lambda name: _Visitor(name) if name == login.name else None)
    pages = Blueprint("servebench_login", __name__)

    @pages.route("/servebench/login", methods=["POST"])
    def answer() -> Response:
        if login.admits(request.form.get("username", ""), request.form.get("password", "")):
            session.pop("auth_error", None)
            flask_login.login_user(_Visitor(login.name))
            return redirect(url_for("locust.index"))
        gevent.sleep(WRONG_S)
        session["auth_error"] = "Wrong name or password."
        return redirect(url_for("locust.login"))

    base = (getattr(ui.environment.parsed_options, "web_base_path", None) or "").rstrip("/")
    ui.app.register_blueprint(pages, url_prefix=base or None)
    ui.auth_args = {"title": "servebench", "username_password_callback": f"{base}/servebench/login"}
