//! The runtime that openraft runs on: [`crate::tasks`] and [`crate::time`], as openraft asks for them.
//!
//! Left out on purpose: the channels, which are tokio's. They need no runtime.

use crate::tasks::{JoinHandle, NoValue, entered, spawn};
use crate::time::{Instant, Sleep, Timeout, TooLate, sleep, timeout};
use env::{OsRandom, Random};
use openraft::async_runtime::{AsyncRuntime, TokioOneShotSender};
use rand_core::RngCore;
use std::time::Duration;
use tokio::sync::oneshot;

impl openraft::Instant for Instant {
    fn now() -> Instant {
        Instant::now()
    }
}

/// Random numbers for openraft.
pub struct Dice;

impl RngCore for Dice {
    fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        entered().map_or_else(|| OsRandom.next_u64(), |tasks| tasks.random())
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(out);
        Ok(())
    }
}

/// The same for openraft.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Runtime;

impl AsyncRuntime for Runtime {
    type JoinError = NoValue;
    type JoinHandle<T: Send + 'static> = JoinHandle<T>;
    type Sleep = Sleep;
    type Instant = Instant;
    type TimeoutError = TooLate;
    type Timeout<R, F: Future<Output = R> + Send> = Timeout<F>;
    type ThreadLocalRng = Dice;
    type OneshotSender<T: Send> = TokioOneShotSender<T>;
    type OneshotReceiver<T: Send> = oneshot::Receiver<T>;
    type OneshotReceiverError = oneshot::error::RecvError;

    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn(future)
    }

    fn sleep(duration: Duration) -> Sleep {
        sleep(duration)
    }

    fn sleep_until(deadline: Instant) -> Sleep {
        sleep(deadline - Instant::now())
    }

    fn timeout<R, F: Future<Output = R> + Send>(duration: Duration, future: F) -> Timeout<F> {
        timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + Send>(deadline: Instant, future: F) -> Timeout<F> {
        timeout(deadline - Instant::now(), future)
    }

    fn is_panic(error: &NoValue) -> bool {
        error.panicked
    }

    fn thread_rng() -> Dice {
        Dice
    }

    fn oneshot<T: Send>() -> (TokioOneShotSender<T>, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (TokioOneShotSender(sender), receiver)
    }
}
