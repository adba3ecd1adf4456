//! Turns: what a thread that runs many sessions tells the session that runs on it.
//!
//! ```text
//! a turn:  session, session, session ──▶ those that said `afterwards` ──▶ the thread waits
//! ```
//! A thread of a server runs every session that is ready, one after the other, and then waits for events. A session that is about
//! to do something once for all of them (a flush, a message with the words of several) waits until the others have run. The words lie
//! in thread locals, because what a session runs on has no path to the thread that runs it, and must not need one: on a thread without
//! turns (the library's caller, a test) nothing is waited for.
//!
//! Left out on purpose: the turns themselves, which are the server's.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

thread_local! {
    /// Tasks that are still to run in this turn.
    static LEFT: Cell<usize> = const { Cell::new(0) };
    /// The task that runs wants to go on when those have run.
    static LATE: Cell<bool> = const { Cell::new(false) };
    /// The thread had one socket when it last waited.
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the session that runs has its thread to itself, so that it may wait there for a disk.
pub fn alone() -> bool {
    ALONE.get()
}

/// Goes on when the other tasks of this turn have run; at once where there are none, or no turns.
pub async fn afterwards() {
    if LEFT.get() == 0 {
        return;
    }
    let mut asked = false;
    poll_fn(|_| {
        if std::mem::replace(&mut asked, true) {
            return Poll::Ready(());
        }
        LATE.set(true);
        Poll::Pending
    })
    .await;
}

/// For the thread: so many tasks are still to run in this turn.
pub fn set_left(tasks: usize) {
    LEFT.set(tasks);
}

/// For the thread: whether it has one session only.
pub fn set_alone(alone: bool) {
    ALONE.set(alone);
}

/// For the thread: whether the task that ran last has said [`afterwards`]. The thread asks once after each step of a task.
pub fn take_late() -> bool {
    LATE.replace(false)
}
