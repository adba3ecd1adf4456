//! Words for whoever runs the process, and the guard of what must not be left half done.
//!
//! `eprintln!` panics when standard error cannot be written: it may be a file on the disk that has just become full, or a pipe whose reader
//! has died. Where a node says that its disk is full that panic would do more harm than the words do good. [`say!`](crate::say!) loses them.
//!
//! Left out on purpose: levels and formats. The server has `tracing` for what operators read every day; this is for the crates below it.

/// A line on standard error, where it can be written.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

/// While it lives a panic ends the process: what is under way may neither be left half done nor be done by somebody else.
pub struct Whole(pub &'static str);

impl Drop for Whole {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say!("canon: a panic in {}: stopping", self.0);
            std::process::abort();
        }
    }
}
