//! README's example, built as the project of an application: `examples/library`, outside of the workspace.
//!
//! The project takes its versions from the workspace's lock file and builds into the workspace's target directory with the same
//! profile, so that libraries of others are not compiled again. It is checked with default features and without.
//! That README shows these programs word for word is a rule of `tidy`.
//!
//! Left out on purpose: running them, which would compile the engine a second time. The documentation test of `canon::database`
//! runs the same steps.

use crate::{Result, command, step};
use std::process::Command;

const PROJECT: &str = "examples/library";

/// One command for each set of features.
pub fn check() -> Result<()> {
    let root = command::root();
    let lock = root.join(PROJECT).join("Cargo.lock");
    std::fs::copy(root.join("Cargo.lock"), &lock)
        .map_err(|e| format!("{}: {e}", lock.display()))?;
    step::whole("library", cargo("check", &["--quiet", "--bins"]))?;
    let bare = ["--quiet", "--bins", "--no-default-features"];
    step::whole("library-bare", cargo("check", &bare))
}

/// The workspace's `cargo fmt` does not see the project.
pub fn format() -> Result<()> {
    step::whole("fmt-library", cargo("fmt", &["--check"]))
}

fn cargo(what: &str, args: &[&str]) -> Command {
    let mut command = command::cargo(&[what]);
    let manifest = command::root().join(PROJECT).join("Cargo.toml");
    command.arg("--manifest-path").arg(manifest).args(args);
    command
}
