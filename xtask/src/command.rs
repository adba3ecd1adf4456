//! Starting processes, and the directories that every step agrees on.
//!
//! The target directory is chosen once: `CARGO_TARGET_DIR` if set, else `canon/target` in the user's cache directory
//! if somebody created it (a checkout that is thrown away then still builds warm), else `target` in the checkout.
//! Every cargo that a step starts is told that directory, so that nothing is built twice.

use crate::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the workspace that the working directory lies in. (Not the one that this program was built from: several
/// checkouts may share a target directory.)
pub fn root() -> PathBuf {
    let here = std::env::current_dir().expect("a working directory");
    workspace_above(&here).expect("run it inside of the checkout")
}

fn workspace_above(here: &Path) -> Option<PathBuf> {
    let is_root = |dir: &&Path| {
        std::fs::read_to_string(dir.join("Cargo.toml"))
            .is_ok_and(|text| text.lines().any(|line| line.trim() == "[workspace]"))
    };
    here.ancestors().find(is_root).map(Path::to_path_buf)
}

/// The one target directory (absolute).
pub fn target_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("CARGO_TARGET_DIR") {
        return root().join(dir);
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    match cache.map(|c| c.join("canon").join("target")) {
        Some(dir) if dir.is_dir() => dir,
        _ => root().join("target"),
    }
}

/// A cargo that works in the workspace root with the shared target directory.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command
        .args(args)
        .current_dir(root())
        .env("CARGO_TARGET_DIR", target_dir())
        // Set by the cargo that runs xtask; they would leak this package's identity into the inner build.
        .env_remove("CARGO_PKG_NAME")
        .env_remove("CARGO_MANIFEST_DIR");
    command
}

/// What git says of a checkout.
pub fn git(checkout: &Path, args: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    // Set where a worktree is built, these would name another repository.
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
    output(git.arg("-C").arg(checkout).args(args))
}

/// Runs to the end and gives standard output; an error carries both streams.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let out = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{shown}: {e}"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(format!(
        "{shown}: {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    ))
}

/// The command line as a person would type it.
pub fn show(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_working_directorys() {
        let dir = std::env::temp_dir().join(format!("canon-xtask-{}", std::process::id()));
        let inner = dir.join("crates/one/src");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(dir.join("Cargo.toml"), "[workspace]\nmembers = []\n").unwrap();
        std::fs::write(
            dir.join("crates/one/Cargo.toml"),
            "[package]\nname = \"one\"\n",
        )
        .unwrap();
        let found = workspace_above(&inner);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, Some(dir));
    }
}
