//! What the benches' command lines and loads share.
//!
//! Left out on purpose: the command lines themselves, which differ.

use crate::Result;

/// Whether the kernel shares the machine among sessions first, and among processes then.
pub const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// READ COMMITTED and so on, as the setting's value; `None` is the server's default.
pub type Isolation = Option<&'static str>;

pub fn number<T: std::str::FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T> {
    let parsed = text.parse().ok().filter(|n| *n >= T::from(1));
    parsed.ok_or(format!("`{text}` is not a number from 1"))
}
