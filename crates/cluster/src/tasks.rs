//! Tasks of the control plane: tokio's in a server, a simulation's own in a simulation.
//!
//! ```text
//! member, consensus, openraft ── spawn, sleep, timeout, now ──▶ tokio and the operating system      in a server
//!                                                          └──▶ the Tasks that this thread entered  in a simulation
//! ```
//! openraft takes its runtime as a type whose functions are static. So one type serves both (`consensus::runtime`), and looks at a thread-local. A thread that
//! has called [`enter`] runs everything over those [`Tasks`]. The type of the consensus is the same in a server and in a simulation, and so is its code.
//!
//! **What a simulation may rely on.** All code of this crate and of openraft that waits does so here, in [`crate::time`], or on channels that need no runtime
//! (`tokio::sync`). Of tokio's own dice two are left: the order in which a `watch` wakes its receivers, and openraft's `select!` without an order. The first does not
//! show where tasks that are ready are run by their numbers. The second does not where one event happens at an instant: then one branch alone is ready. A sleep
//! is over when its [`Timer`] has fired, not when the clock says so, which keeps this true.
//!
//! | other way | why not |
//! |---|---|
//! | a type parameter for the runtime | it would stand in every type of this crate, for the simulation alone |
//! | openraft's feature `singlethreaded` | it takes the bounds away that a server needs, for all crates of a build. The futures here can be sent, so one thread can run them as they are |
//! | a patched tokio | other code than a server's |
//!
//! Left out on purpose: the executor. A simulation brings it, with clocks that drift and machines that stand still.

use parking_lot::Mutex;
use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use tokio::sync::oneshot;

/// A task of a simulation. What it returns goes to its [`JoinHandle`].
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What runs tasks in place of tokio. All calls come from the thread that has entered it.
pub trait Tasks: Send + Sync {
    /// Runs the task on the machine whose task runs now. Its number.
    fn spawn(&self, task: Task) -> u64;

    /// Drops the task with this number, if it has not ended.
    fn end(&self, task: u64);

    /// Nanoseconds of the clock of the machine whose task runs now; never falls.
    fn now(&self) -> u64;

    /// Fires the timer when this clock says so, at the earliest.
    fn fire_at(&self, at: u64, timer: Arc<Timer>);

    /// A random number.
    fn random(&self) -> u64;
}

thread_local! {
    static ENTERED: RefCell<Option<Arc<dyn Tasks>>> = const { RefCell::new(None) };
}

/// As long as it lives, the thread runs everything over the [`Tasks`] that it has entered.
pub struct Entered(());

impl Drop for Entered {
    fn drop(&mut self) {
        _ = ENTERED.try_with(|entered| entered.borrow_mut().take());
    }
}

/// This thread runs everything over these from now on.
pub fn enter(tasks: Arc<dyn Tasks>) -> Entered {
    ENTERED.with(|entered| {
        let before = entered.borrow_mut().replace(tasks);
        assert!(before.is_none(), "a thread enters one simulation at a time");
    });
    Entered(())
}

/// What this thread has entered; none: it is a server's.
pub(crate) fn entered() -> Option<Arc<dyn Tasks>> {
    ENTERED
        .try_with(|entered| entered.borrow().clone())
        .ok()
        .flatten()
}

/// Fires once.
#[derive(Default)]
pub struct Timer {
    fired: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Timer {
    /// The time has come. Wakes the task that waits.
    pub fn fire(&self) {
        self.fired.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if self.fired.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        *self.waker.lock() = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Why a task has no value.
#[derive(Debug)]
pub struct NoValue {
    pub(crate) panicked: bool,
}

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.panicked {
            true => "the task has panicked",
            false => "the task was ended",
        })
    }
}

impl std::error::Error for NoValue {}

/// A task that was spawned; ready with its value. Dropping it leaves the task alone.
pub struct JoinHandle<T>(Handle<T>);

enum Handle<T> {
    Tokio(tokio::task::JoinHandle<T>),
    Own {
        value: oneshot::Receiver<T>,
        number: u64,
        tasks: Arc<dyn Tasks>,
    },
}

impl<T> JoinHandle<T> {
    /// Ends the task where it waits.
    pub fn abort(&self) {
        match &self.0 {
            Handle::Tokio(handle) => handle.abort(),
            Handle::Own { number, tasks, .. } => tasks.end(*number),
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, NoValue>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Handle::Tokio(handle) => Pin::new(handle).poll(cx).map_err(|e| NoValue {
                panicked: e.is_panic(),
            }),
            // A panic in a simulation ends it, and with it the task that would ask.
            Handle::Own { value, .. } => Pin::new(value)
                .poll(cx)
                .map_err(|_| NoValue { panicked: false }),
        }
    }
}

/// Runs this beside the caller.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let Some(tasks) = entered() else {
        return JoinHandle(Handle::Tokio(tokio::spawn(future)));
    };
    let (told, value) = oneshot::channel();
    let number = tasks.spawn(Box::pin(async move {
        _ = told.send(future.await);
    }));
    JoinHandle(Handle::Own {
        value,
        number,
        tasks,
    })
}

/// Does this on a thread that may wait for a disk. A simulation does it in a task.
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    match entered() {
        None => JoinHandle(Handle::Tokio(tokio::task::spawn_blocking(work))),
        Some(_) => spawn(async move { work() }),
    }
}
