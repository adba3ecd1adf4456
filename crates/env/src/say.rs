//! Words for whoever runs the process, and the guard of what must not be left half done.
//!
//! `eprintln!` panics when standard error cannot be written: it may be a file on the disk that has just become full, or a pipe whose reader
//! has died. Where a node says that its disk is full that panic would do more harm than the words do good. [`say!`](crate::say!) loses them.
//!
//! A process that has a logger hands it in once ([`set_logger`]); then all of it goes there, in the logger's format and with its filter:
//!
//! ```text
//! say!, alarm! ──▶ tell ──▶ the logger, if there is one, else a line "canon: …" on standard error
//! ```
//!
//! Left out on purpose: other levels and fields. The server has `tracing` for what operators read every day; this is for the crates below it.

use std::fmt;
use std::sync::OnceLock;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Worth a look; the work goes on.
    Warning,
    /// Something is lost, damaged or ends.
    Error,
}

/// Takes a message without a line's end.
pub type Logger = fn(Level, &str);

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// From now on messages go to this logger. The first call counts.
pub fn set_logger(logger: Logger) {
    _ = LOGGER.set(logger);
}

/// What [`say!`](crate::say!) and [`alarm!`](crate::alarm!) call.
pub fn tell(level: Level, words: fmt::Arguments<'_>) {
    use std::io::Write as _;
    const PREFIX: &str = "canon: ";
    let words = words.to_string();
    let words = words.strip_prefix(PREFIX).unwrap_or(&words);
    match LOGGER.get() {
        Some(log) => log(level, words),
        None => _ = writeln!(std::io::stderr(), "{PREFIX}{words}"),
    }
}

/// A warning to the logger, or a line on standard error where it can be written.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::tell($crate::say::Level::Warning, format_args!($($words)*))
    };
}

/// An error, to where [`say!`](crate::say!) goes.
#[macro_export]
macro_rules! alarm {
    ($($words:tt)*) => {
        $crate::say::tell($crate::say::Level::Error, format_args!($($words)*))
    };
}

/// While it lives a panic ends the process: what is under way may neither be left half done nor be done by somebody else.
pub struct Whole(pub &'static str);

impl Drop for Whole {
    fn drop(&mut self) {
        if std::thread::panicking() {
            alarm!("canon: a panic in {}: stopping", self.0);
            std::process::abort();
        }
    }
}
