//! Time of the control plane: the clock's and tokio's timers in a server, those of a simulation in a simulation ([`crate::tasks`]).
//!
//! Leases do not count by it: they have `env::Clock`, which goes on while a machine is suspended.
//!
//! Left out on purpose: intervals. What looks around from time to time sleeps between two looks.

use crate::tasks::{Timer, entered};
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

/// Ready when the time is over.
pub struct Sleep(Sleeps);

enum Sleeps {
    Tokio(Pin<Box<tokio::time::Sleep>>),
    Own(Arc<Timer>),
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Sleeps::Tokio(sleep) => sleep.as_mut().poll(cx),
            Sleeps::Own(timer) => timer.poll(cx),
        }
    }
}

/// Waits for so long.
pub fn sleep(duration: Duration) -> Sleep {
    let Some(tasks) = entered() else {
        return Sleep(Sleeps::Tokio(Box::pin(tokio::time::sleep(duration))));
    };
    // Planned here, and not at the first poll: a `select!` may poll another branch before, or not, by chance.
    let timer = Arc::new(Timer::default());
    let at = tasks.now().saturating_add(nanos(duration));
    tasks.fire_at(at, timer.clone());
    Sleep(Sleeps::Own(timer))
}

/// The time was over before the future was ready.
#[derive(Debug)]
pub struct TooLate;

impl fmt::Display for TooLate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it took too long")
    }
}

/// A future that has so much time.
pub struct Timeout<F> {
    future: Pin<Box<F>>,
    over: Sleep,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, TooLate>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(value) = self.future.as_mut().poll(cx) {
            return Poll::Ready(Ok(value));
        }
        Pin::new(&mut self.over).poll(cx).map(|()| Err(TooLate))
    }
}

/// Gives the future so much time.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout {
        future: Box::pin(future),
        over: sleep(duration),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A point in time, of a clock that counts while the process runs. Of one process, and in a simulation of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

/// The clock's beginning: openraft counts back from now.
const BEGINNING: Duration = Duration::from_secs(24 * 3600);

impl Instant {
    /// Now.
    pub fn now() -> Instant {
        static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
        let since = match entered() {
            None => ORIGIN.get_or_init(std::time::Instant::now).elapsed(),
            Some(tasks) => Duration::from_nanos(tasks.now()),
        };
        Instant(BEGINNING + since)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(duration))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, other: Instant) -> Duration {
        self.0.saturating_sub(other.0)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}
