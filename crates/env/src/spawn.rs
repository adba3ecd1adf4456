//! Threads. A named thread that is joined, and a crew of workers that lives for the length of one call.
//!
//! Left out on purpose: async tasks. They belong to the runtime of the crate that serves sockets.

use std::io;

/// Starts threads.
pub trait Spawn: Send + Sync {
    /// Starts a thread with this name (at most 15 bytes show up in the operating system's tools).
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle>;

    /// How many workers a parallel step should use on this machine.
    fn parallelism(&self) -> usize;

    /// The calling thread does what can wait: when processors are short, others come first from now on.
    fn give_way(&self) {}
}

/// A started thread. Dropping the handle leaves the thread running.
pub struct JoinHandle {
    thread: std::thread::JoinHandle<()>,
}

impl JoinHandle {
    /// Waits for the thread's end. `Err` holds the payload of its panic.
    pub fn join(self) -> std::thread::Result<()> {
        self.thread.join()
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Niceness of a thread that gives way: a third of an ordinary one's share, so that what it holds in the kernel is not held for long.
const GIVES_WAY: i32 = 5;

/// Threads of the operating system.
pub struct OsSpawn;

impl Spawn for OsSpawn {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body)?;
        Ok(JoinHandle { thread })
    }

    fn parallelism(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn give_way(&self) {
        // On Linux this is the thread's niceness, not the process's. Should it fail, work goes on as before.
        let _ = rustix::process::nice(GIVES_WAY);
    }
}

/// Runs `work(0) … work(workers - 1)` side by side and returns when all have ended; a panic in one is passed on.
/// With one worker nothing is started and the work runs on the calling thread, so a simulation stays on its one thread.
pub fn crew(workers: usize, work: impl Fn(usize) + Sync) {
    assert!(workers > 0, "a crew has at least one worker");
    if workers == 1 {
        return work(0);
    }
    std::thread::scope(|scope| {
        let work = &work;
        for i in 1..workers {
            scope.spawn(move || work(i));
        }
        work(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_crew_runs_every_worker_once() {
        for workers in [1, 2, 5] {
            let sum = AtomicUsize::new(0);
            crew(workers, |i| {
                sum.fetch_add(1 << (8 * i), Ordering::Relaxed);
            });
            assert_eq!(
                sum.into_inner(),
                (0..workers).map(|i| 1 << (8 * i)).sum::<usize>()
            );
        }
    }

    #[test]
    fn a_panic_reaches_the_joiner() {
        let handle = OsSpawn
            .spawn("fails", Box::new(|| panic!("on purpose")))
            .unwrap();
        assert!(handle.join().is_err());
    }
}
