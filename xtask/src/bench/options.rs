//! What the benches' command lines and loads share.
//!
//! Left out on purpose: the command lines themselves, which differ.

use crate::{Result, command};
use std::path::PathBuf;

/// Whether the kernel shares the machine among sessions first, and among processes then.
pub const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// READ COMMITTED and so on, as the setting's value; `None` is the server's default.
pub type Isolation = Option<&'static str>;

pub fn number<T: std::str::FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T> {
    let parsed = text.parse().ok().filter(|n| *n >= T::from(1));
    parsed.ok_or(format!("`{text}` is not a number from 1"))
}

/// The program to measure: the given one, or a release build of this checkout.
pub fn program(given: &Option<PathBuf>) -> Result<PathBuf> {
    if let Some(binary) = given {
        return Ok(binary.clone());
    }
    println!("building canon, release");
    let build = ["build", "--release", "--package", "canon"];
    command::output(&mut command::cargo(&build))?;
    Ok(command::target_dir().join("release").join("canon"))
}
