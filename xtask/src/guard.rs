//! Puts the machine back as it was, also after Ctrl-C, `kill -9` or a panic.
//!
//! A second process, in its own process group, reads from a pipe what there is to undo and waits for the pipe to
//! close: at the normal end because `Guard` is dropped, else because the kernel closes it with its owner. Then it kills the
//! processes, those too that work in one of the directories, removes the directories and writes back the settings, in this order.
//! A process is known by pid and start time, so that a pid used again is left alone.

use crate::{Result, process};
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The subcommand that the second process runs.
pub const SUBCOMMAND: &str = "guard-reads-standard-input";

/// While this lives, so do the changes.
pub struct Guard {
    child: Child,
}

impl Guard {
    pub fn new() -> Result<Guard> {
        let me = std::env::current_exe().map_err(|e| format!("own program: {e}"))?;
        let child = Command::new(me)
            .arg(SUBCOMMAND)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("guard: {e}"))?;
        Ok(Guard { child })
    }

    /// Kills `pid` and its descendants at the end, if it still runs.
    pub fn process(&mut self, pid: u32) -> Result<()> {
        let started = process::started(pid).unwrap_or_default();
        self.say(&format!("process {pid} {started}"))
    }

    /// Removes the directory at the end, and kills what works in it: it is to be one that this program has made.
    pub fn directory(&mut self, path: &Path) -> Result<()> {
        self.say(&format!("directory {}", path.display()))
    }

    /// Writes `value` to `file` now and what stood there at the end. `false`: there is no such file, or it is not ours.
    pub fn setting(&mut self, file: &str, value: &str) -> Result<bool> {
        let Ok(old) = std::fs::read_to_string(file) else {
            return Ok(false);
        };
        if old.trim() == value {
            return Ok(true); // Perhaps another run's doing, and then its to undo.
        }
        self.say(&format!("setting {file} {}", old.trim()))?;
        Ok(std::fs::write(file, value).is_ok())
    }

    fn say(&mut self, line: &str) -> Result<()> {
        let mut pipe = self.child.stdin.as_ref().expect("made with a pipe");
        writeln!(pipe, "{line}").map_err(|e| format!("guard: {e}"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The second process: returns when everything is undone.
pub fn main() -> Result<()> {
    let lines: Vec<String> = std::io::stdin()
        .lock()
        .lines()
        .map_while(|l| l.ok())
        .collect();
    undo(&lines);
    Ok(())
}

fn undo(lines: &[String]) {
    let of = |kind: &str| -> Vec<(&str, &str)> {
        let named = lines.iter().filter_map(|l| l.strip_prefix(kind));
        named
            .filter_map(|l| l.trim_start().rsplit_once(' '))
            .collect()
    };
    for (pid, started) in of("process") {
        let pid: u32 = pid.parse().unwrap_or_default();
        if process::started(pid).is_some_and(|s| s.to_string() == started) {
            process::kill_tree(pid);
        }
    }
    for line in lines.iter().filter_map(|l| l.strip_prefix("directory ")) {
        for pid in process::working_in(Path::new(line)) {
            process::kill_tree(pid);
        }
        let _ = std::fs::remove_dir_all(line);
    }
    for (file, value) in of("setting") {
        let _ = std::fs::write(file, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_directories_and_settings_go_back() {
        let directory = std::env::temp_dir().join(format!("xtask-guard-{}", std::process::id()));
        let inner = directory.join("inner directory");
        std::fs::create_dir_all(&inner).unwrap();
        let setting = directory.join("setting");
        std::fs::write(&setting, "0").unwrap();
        let sleep = || Command::new("sleep").arg("600").spawn().unwrap();
        let (mut ours, mut another) = (sleep(), sleep());
        // As a server that its script has left behind.
        let mut there = Command::new("sleep");
        let mut there = there.arg("600").current_dir(&inner).spawn().unwrap();
        let started = process::started(ours.id()).unwrap();
        undo(&[
            format!("process {} {started}", ours.id()),
            format!("process {} 1", another.id()),
            format!("directory {}", inner.display()),
            format!("setting {} 1", setting.display()),
        ]);
        assert!(!ours.wait().unwrap().success());
        assert!(!there.wait().unwrap().success());
        assert!(
            another.try_wait().unwrap().is_none(),
            "the same pid, started at another time"
        );
        another.kill().unwrap();
        another.wait().unwrap();
        assert!(!inner.exists());
        assert_eq!(std::fs::read_to_string(&setting).unwrap(), "1");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
