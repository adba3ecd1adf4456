//! Numbers of sequences, which a site gives out of ranges that it draws from its primary.
//!
//! ```text
//! nextval ──▶ Engine::nextval ──▶ a number
//!                             └─▶ none is here: the statement is undone, waits, and runs again     while it has drawn none
//!                                               it waits where it stands                           once it has: another run would draw others
//! ```
//! The second way takes a thread for the length of a round trip, and is for statements that draw many. At a primary there are always some.
//!
//! What is here is what a session keeps for it; `state` draws, and `run` waits between two runs.
//!
//! Left out on purpose: who draws ranges and how large they are (`node`).

use crate::reading::Waiting;
use base::Oid;
use std::cell::{Cell, RefCell};

/// What a session knows of the numbers that it draws at a site.
#[derive(Default)]
pub(super) struct Drawing {
    /// The running statement may draw here, though what else it writes may go to the primary.
    pub here: Cell<bool>,
    /// Its run may be undone to wait for numbers: it has drawn none, and nothing of it has been told.
    pub may_run_again: Cell<bool>,
    /// It is undone for this.
    pub awaited: RefCell<Option<Waiting<()>>>,
    /// Sequences that the transaction has drawn from.
    pub used: RefCell<Vec<Oid>>,
}
