//! A connection's task with its account: whatever thread it runs on, what it takes of memory is its session's.

use base::memory::{self, Account};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// See the head of the file.
pub struct Metered<F> {
    future: Pin<Box<F>>,
    /// With the thread while it polls.
    account: Option<Arc<Account>>,
}

impl<F: Future> Metered<F> {
    pub fn new(future: F, account: Arc<Account>) -> Metered<F> {
        Metered {
            future: Box::pin(future),
            account: Some(account),
        }
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _inside = memory::enter(&mut this.account);
        this.future.as_mut().poll(cx)
    }
}
