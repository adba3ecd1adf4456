//! What a client or a suite needs of a package registry, installed below `clients` in the target directory by the registry's own program.
//!
//! A directory is made once for the words that describe it (packages and versions, or a file's text), and anew when they change.
//!
//! Left out on purpose: downloads from anywhere else.

use crate::{Result, command};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of this name, made by `install` unless it was made with the same words before.
pub fn once(name: &str, words: &str, install: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let at = command::target_dir().join("clients").join(name);
    let stamp = at.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|s| s == words) {
        return Ok(at);
    }
    let fail = |e: std::io::Error| format!("{}: {e}", at.display());
    if at.exists() {
        std::fs::remove_dir_all(&at).map_err(fail)?;
    }
    std::fs::create_dir_all(&at).map_err(fail)?;
    install(&at)?;
    std::fs::write(&stamp, words).map_err(fail)?;
    Ok(at)
}

/// A virtual environment with these packages of PyPI.
pub fn python(name: &str, packages: &[&str]) -> Result<PathBuf> {
    once(&format!("python-{name}"), &packages.join(" "), |at| {
        command::output(Command::new("python3").args(["-m", "venv"]).arg(at))?;
        pip(at, "install", packages)
    })
}

/// The unpacked source distribution of one package of PyPI, beside the environment that unpacks it.
pub fn source(name: &str, package: &str) -> Result<PathBuf> {
    let at = once(&format!("source-{name}"), package, |at| {
        let venv = at.join("venv");
        command::output(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        // pip asks the source for its metadata; only this package is to be one, not what builds it.
        let bare = package.split("==").next().unwrap_or(package);
        let to = at.display().to_string();
        pip(
            &venv,
            "download",
            &["--no-deps", "--no-binary", bare, "-d", &to, package],
        )?;
        let archive = found(at, |n| n.ends_with(".tar.gz"))?;
        let mut tar = Command::new("tar");
        command::output(tar.arg("-xzf").arg(archive).arg("-C").arg(at)).map(drop)
    })?;
    found(&at, |n| n.contains('-') && !n.ends_with(".tar.gz"))
}

fn found(directory: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let all = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names = all.filter(|e| e.file_name().to_str().is_some_and(&wanted));
    let one = names.next().map(|e| e.path());
    one.ok_or(format!("{}: the package is not there", directory.display()))
}

fn pip(venv: &Path, action: &str, arguments: &[&str]) -> Result<()> {
    let mut pip = Command::new(venv.join("bin").join("pip"));
    pip.args([action, "--quiet", "--disable-pip-version-check"]);
    command::output(pip.args(arguments)).map(drop)
}

/// A directory with the program `client`, made of one file of Go and these modules.
pub fn go(name: &str, modules: &[&str], file: &Path) -> Result<PathBuf> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let words = format!("{}\n{text}", modules.join(" "));
    once(&format!("go-{name}"), &words, |at| {
        let go = |args: &[&str]| {
            let mut go = Command::new("go");
            command::output(go.args(args).current_dir(at)).map(drop)
        };
        std::fs::write(at.join("main.go"), &text).map_err(|e| e.to_string())?;
        go(&["mod", "init", "canon/client"])?;
        go(&[&["get"], modules].concat())?;
        // What the imports need beside.
        go(&["get", "."])?;
        go(&["build", "-o", "client", "."])
    })
}
