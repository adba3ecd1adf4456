//! Threads that lost their core in the middle of a step: those that go on computing get less of the processors.
//!
//! A thread loses its core when the clock finds it in one step for too long. It may compute, or it may only wait for a processor: on a busy machine
//! a short step takes long as well. The system tells how much time a thread had on processors. One that had [`ENOUGH`] of it since it lost its core
//! is niced ([`NICE`]), so that many long statements do not keep the cores from short ones. One that waits is left as it is: niced, it would wait longer
//! still, with whatever it holds.
//!
//! Left out on purpose: a way back. The thread ends with its step.

use rustix::process::{Pid, getpriority_process, setpriority_process};
use std::time::Duration;

/// What a thread adds to its nice value.
const NICE: i32 = 10;
/// Time on processors, after a thread lost its core, that tells a long step from a short one.
const ENOUGH: Duration = Duration::from_millis(10);

/// Threads without a core that have not been told apart yet.
#[derive(Default)]
pub(super) struct Lost(Vec<Thread>);

struct Thread {
    id: Pid,
    /// Time that it had on processors when it lost its core.
    before: Duration,
}

/// Time that a thread of this process had on processors; none: it has ended.
fn used(id: Pid) -> Option<Duration> {
    let path = format!("/proc/self/task/{}/schedstat", id.as_raw_nonzero());
    let text = std::fs::read_to_string(path).ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

impl Lost {
    /// The thread of this number has lost its core.
    pub fn add(&mut self, id: i32) {
        let thread = Pid::from_raw(id).and_then(|id| {
            Some(Thread {
                id,
                before: used(id)?,
            })
        });
        self.0.extend(thread);
    }

    /// Nices those that have computed since. For a clock.
    pub fn look(&mut self) {
        self.0.retain(|t| match used(t.id) {
            None => false,
            Some(now) if now.saturating_sub(t.before) < ENOUGH => true,
            Some(_) => {
                // Best effort: the system may refuse it.
                if let Ok(nice) = getpriority_process(Some(t.id)) {
                    _ = setpriority_process(Some(t.id), (nice + NICE).min(19));
                }
                false
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Runs a thread of this kind, looks until it was told apart or `looks` have passed; its nice value then.
    fn nice_of(step: impl Fn() + Send + 'static, looks: usize) -> (bool, i32) {
        let (said, heard) = mpsc::channel();
        let (release, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            said.send(rustix::thread::gettid().as_raw_nonzero().get())
                .unwrap();
            while wait.try_recv() == Err(mpsc::TryRecvError::Empty) {
                step();
            }
        });
        let id = heard.recv().unwrap();
        let mut lost = Lost::default();
        lost.add(id);
        for _ in 0..looks {
            lost.look();
            if lost.0.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let nice = getpriority_process(Pid::from_raw(id)).unwrap();
        release.send(()).unwrap();
        thread.join().unwrap();
        lost.look();
        (lost.0.is_empty(), nice)
    }

    #[test]
    fn a_thread_that_computes_is_niced_and_one_that_waits_is_not() {
        let own = getpriority_process(None).unwrap();
        assert_eq!(nice_of(|| (), usize::MAX), (true, (own + NICE).min(19)));
        let wait = || std::thread::sleep(Duration::from_millis(20));
        assert_eq!(nice_of(wait, 50), (true, own));
    }
}
