//! What a site asks of its primary, and the way there.
//!
//! Left out on purpose: both ends of the connection, which are the server's.

use base::{Oid, Position, Result};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use txn::Durability;

/// What is asked of the primary.
#[derive(Debug)]
pub struct Request {
    /// Names it: a repeated one is answered again and never run again. It cannot be guessed.
    pub number: u64,
    /// The transaction can have committed above this position only.
    pub after: Position,
    /// A request of this number has had a verdict that turned out to be of another history.
    pub again: bool,
    pub durability: Durability,
    /// [`base::Candidate::encode`].
    pub candidate: Vec<u8>,
}

/// The way to the primary.
pub trait Certifier: Send + Sync {
    /// Asks until there is a verdict: where it has committed, or why it is rolled back. 40003: that is not known any more.
    fn certify(
        self: Arc<Self>,
        request: Request,
    ) -> Pin<Box<dyn Future<Output = Result<Position>> + Send>>;

    /// Asks for so many numbers of a sequence. The answer is the node's to take ([`crate::Node::numbers_came`]), in time; what is asked for is not
    /// asked for again before.
    fn draw(&self, sequence: Oid, count: u32);
}
