//! How a server ends so that another one may start in its process, and what comes where that cannot be done.
//!
//! ```text
//! connections closed ──▶ node stopped: log on the disk ──▶ nothing holds it ──▶ directory unlocked ──▶ start in this process
//!                                                    └─ held for longer than HELD ──▶ the process begins anew, in its own place
//! ```
//! A thread that waits for a disk or for another node may hold the node of a server that was stopped. The directory is locked until then, so a start in this
//! process would be refused. The log names what holds the node.
//!
//! **The process begins anew** by `execve` of its own program with its own arguments. Its number stays, so a service manager sees no end. Threads, locks and
//! sockets end with the old program. Where the node was stopped before, its log is whole; else the start recovers as after `kill -9`. The same is done where a
//! server could not start again in its process, for whatever reason: what a first start says to that reason is what counts. Only where the program cannot be
//! run again does the process end, with an error.
//!
//! Left out on purpose: servers in a process that is not theirs (the library's clusters). Their start fails with 55006 (object_in_use).

use base::{Error, SqlState};
use node::Node;
use service::system;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::{error, warn};

/// How long something may hold a node that was stopped.
const HELD: Duration = Duration::from_secs(10);
/// How often it is looked whether a node is held still.
const LOOK: Duration = Duration::from_millis(20);
/// How often the log says what holds it.
const REMIND: Duration = Duration::from_secs(2);

/// How many hold a part of a server.
type Count = Box<dyn Fn() -> usize + Send + Sync>;

/// The parts of a server that hold its node, by name. It keeps none of them.
#[derive(Default)]
pub(super) struct Holders(Vec<(&'static str, Count)>);

impl Holders {
    pub(super) fn add<T: Send + Sync + 'static>(&mut self, name: &'static str, part: &Arc<T>) {
        let part = Arc::downgrade(part);
        self.0.push((name, Box::new(move || part.strong_count())));
    }

    /// Those that are there still, for people.
    fn names(&self) -> String {
        let counted = self.0.iter().map(|(name, count)| (name, count()));
        let left = counted.filter(|(_, n)| *n > 0);
        let left: Vec<String> = left.map(|(name, n)| format!("{name} ({n})")).collect();
        match left.is_empty() {
            true => "a part of the server that has no name here".to_owned(),
            false => left.join(", "),
        }
    }
}

/// A node that is stopped, and that something in this process holds still: its directory is locked.
#[derive(Debug)]
pub struct Held {
    /// Commits that had no room on the disk and are given up.
    pub given_up: u64,
    by: String,
}

impl From<Held> for Error {
    fn from(held: Held) -> Error {
        let what = "the node that ran in this process before is in use still";
        Error::new(SqlState::OBJECT_IN_USE, what).detail(format!("It is held by: {}.", held.by))
    }
}

/// Ends a node in this process, which may start again over its directory then. How many commits it gave up.
pub(super) async fn end_node(mut node: Arc<Node>, holders: &Holders) -> Result<u64, Held> {
    let (mut since, mut said) = (None, Instant::now());
    loop {
        let ending = tokio::task::spawn_blocking(move || node.end());
        node = match ending.await {
            Ok(Ok(ended)) => return Ok(ended.given_up),
            Ok(Err(left)) => left,
            Err(e) => {
                error!("the node could not be taken apart: {e}");
                let by = "threads of its own".to_owned();
                return Err(Held { given_up: 0, by });
            }
        };
        let since = *since.get_or_insert_with(Instant::now);
        while Arc::strong_count(&node) > 1 {
            let over = since.elapsed() >= HELD;
            if over || said.elapsed() >= REMIND {
                said = Instant::now();
                let (by, seconds) = (holders.names(), since.elapsed().as_secs());
                warn!(held_by = %by, seconds, "the node is stopped, and held still in this process");
                if over {
                    let given_up = node.flush_stats().given_up.load(Ordering::SeqCst);
                    return Err(Held { given_up, by });
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Runs the program of this process anew in its place. Returns only if that cannot be done.
pub(super) fn begin_anew() -> Error {
    warn!(
        "no server can start in this process: it begins anew, as the same program with the same arguments"
    );
    let mut arguments = std::env::args_os();
    // Also where the file has another build by now, or none: this build is run again.
    let mut program = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        program.arg0(name);
    }
    let e = program.args(for_another_start(arguments)).exec();
    system(format!("the process could not begin anew: {e}"))
}

/// The arguments without what counts for one start only.
fn for_another_start(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    const ONCE: &str = "--accept-log-end";
    let mut all = Vec::new();
    let mut arguments = arguments.peekable();
    while let Some(a) = arguments.next() {
        let text = a.to_string_lossy();
        if text == ONCE {
            arguments.next();
        } else if !text.strip_prefix(ONCE).is_some_and(|r| r.starts_with('=')) {
            all.push(a);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_end_of_the_log_is_for_one_start() {
        let given = ["start", "--accept-log-end", "7:0", "--data", "d"];
        let again = for_another_start(given.into_iter().map(OsString::from));
        assert_eq!(again, ["start", "--data", "d"]);
        let given = ["start", "--accept-log-end=7:0", "--accept-log-ends"];
        let again = for_another_start(given.into_iter().map(OsString::from));
        assert_eq!(again, ["start", "--accept-log-ends"]);
    }

    #[test]
    fn what_holds_a_node_is_named() {
        let (one, other) = (Arc::new(1), Arc::new(2));
        let mut holders = Holders::default();
        holders.add("one", &one);
        holders.add("other", &other);
        let more = one.clone();
        drop(other);
        assert_eq!(holders.names(), "one (2)");
        drop((one, more));
        assert_eq!(
            holders.names(),
            "a part of the server that has no name here"
        );
    }
}
