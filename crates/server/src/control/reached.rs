//! Whether a member is where it says: the consensus leader looks there before it takes a member in, or takes its new address for true.
//!
//! ```text
//! Join { number, address } ──▶ no other member has the address ──▶ a connection to the address, canon.meant=number ──▶ proposed
//! ```
//! **One process is one member.** With two members at one address, one process would answer for both: its testimony would count twice, and a fail-over would lose what was acknowledged.
//!
//! What is between the leader and the address does not matter, such as a proxy or a translation of addresses: the member only has to be the one that answers.
//!
//! | the address | a new member | one that has moved |
//! |---|---|---|
//! | is another member's | refused, and its server ends | goes on where it was known; its log says why |
//! | leads to another server | the same | the same |
//! | is not reached | it tries again; its log says why | the same |
//! | leads to a build that does not say its number | taken in | taken in |
//!
//! Left out on purpose: [`Catalogue::apply`](::cluster::Catalogue), which has to come to the same result in all builds. A name that leads to several servers in turn may pass; then the
//! messages that come to a wrong one are refused there.

use super::Seat;
use crate::replication::Primary;
use crate::replication::members::ANOTHER_MEANT;
use ::cluster::question::Question;
use ::cluster::{Member, NodeId};
use base::{Error, Result, SqlState};
use std::time::Duration;
use tracing::warn;

/// How long the member may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same place, however it is written.
fn is_same(a: &str, b: &str) -> bool {
    match (Primary::parse(a), Primary::parse(b)) {
        (Ok(a), Ok(b)) => {
            let ((a, at), (b, to)) = (a.address(), b.address());
            at == to && a.eq_ignore_ascii_case(&b)
        }
        _ => a == b,
    }
}

impl Seat {
    /// Why this member cannot be where it says; none: it is there. 55000 when the address is not reached now.
    pub(super) async fn misplaced(&self, node: NodeId, member: &Member) -> Result<Option<String>> {
        let (name, address) = (&member.name, &member.address);
        let catalogue = self.catalogue().unwrap_or_default();
        for (id, other) in catalogue.members() {
            match (*id == node, is_same(&other.address, address)) {
                // It was looked for there before.
                (true, true) => return Ok(None),
                (false, true) => {
                    let other = &other.name;
                    return Ok(Some(format!(
                        "the address {address} is that of member \"{other}\": give \"{name}\" one of its own (--cluster-address), or take the other one out (canon leave --member {other})"
                    )));
                }
                _ => {}
            }
        }
        let there = self.node_at(address)?;
        let question = Question::Level.encode();
        let asked = self.roads.ask(&there, Some(node), &question);
        let code = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
        let why = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(_)) => return Ok(None),
            // Of a build that does not know the question.
            Ok(Err(e)) if e.code() == code => return Ok(None),
            Ok(Err(e)) if e.code() == ANOTHER_MEANT => {
                let why = &e.fields().message;
                return Ok(Some(format!(
                    "the address {address} does not lead to \"{name}\": {why}. Say where the others reach it (--cluster-address)"
                )));
            }
            Ok(Err(e)) => e.fields().message.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        let own = &self.config.node_name;
        let what = format!("\"{own}\" does not reach \"{name}\" at {address}: {why}");
        Err(Error::new(code, what))
    }

    /// Says once that another member answers where this one was looked for.
    pub(super) fn says_if_astray(&self, node: NodeId, address: &str, e: &Error) {
        if e.code() != ANOTHER_MEANT || !self.astray.lock().insert((node, address.to_owned())) {
            return;
        }
        let catalogue = self.catalogue().unwrap_or_default();
        let name = catalogue.members().get(&node).map(|m| m.name.as_str());
        warn!(
            member = name.unwrap_or_default(),
            address,
            "a member is not where it is known, and counts as one that is not reached: {}. Start it with an address of its own (--cluster-address), or take it out (canon leave --member)",
            e.fields().message
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_is_written_in_several_ways() {
        assert!(is_same("Db1:5432", "db1:5432"));
        assert!(is_same("postgresql://db1:5432", "db1:5432"));
        assert!(!is_same("db1:5432", "db1:5433"));
        assert!(!is_same("db1:5432", "db2:5432"));
    }
}
