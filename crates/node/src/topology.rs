//! The one door for topologies: all in which they differ at a node.
//!
//! ```text
//! SQL, the library ──▶ Node ──▶ Topology::commit    who decides a commit, and when the outcome is known
//!                               Topology::stand     where snapshots stand that a transaction takes by itself
//!                               Topology::shown     what a reply that shows rows waits for
//!                               Topology::draw      who gives numbers of a sequence
//!                               Topology::runs      which kinds of work run at this node
//! ```
//! Where a node's history comes from is another question: its role. The role picks the topology's answers, since a node that hands over
//! or is promoted answers differently from then on.
//!
//! | role | topology | commits | sequences | runs |
//! |---|---|---|---|---|
//! | primary | [`Here`] | decided on the committing thread | of ranges that its own log has | everything |
//! | sealed | [`Here`] | refused: the order is closed | refused likewise | reads |
//! | replica | [`Follower`] | refused: the manager's gate and the order are closed | refused likewise | reads |
//! | site | [`Site`] | sent to the primary, which certifies them (PSP §3.3) | of ranges that it draws from the primary | reads, changes of rows |
//!
//! Left out on purpose: how a statement travels that does not run here, which is the session's and the server's.

use base::schema::SequenceDef;
use base::{CommitWait, Committing, Drawn, Position, Result, Work};
use txn::Txn;

/// Where a snapshot stands that a transaction takes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// At the newest commit that is installed; the reply waits until that is published.
    Installed,
    /// At what is published; the reply waits for nothing.
    Published,
}

/// What a topology has its node do.
pub trait Local {
    /// Validates, installs and hands to the log on this thread; refused where the order is closed.
    fn commit_here(&self, txn: Box<Txn>, number: u64) -> Result<CommitWait>;

    /// Has the primary certify it; the outcome comes when what it wrote is shown here.
    fn commit_elsewhere(&self, txn: Box<Txn>, number: u64) -> Committing;

    /// Gives a number whose range is in this node's log; refused where the order is closed.
    fn draw_here(&self, sequence: &SequenceDef) -> Result<Drawn>;

    /// Gives a number of a range that the primary's log has.
    fn draw_from_range(&self, sequence: &SequenceDef) -> Drawn;

    /// Whether what is here may be shown.
    fn is_open(&self) -> bool;

    /// What this node shows.
    fn published(&self) -> Position;
}

/// How the nodes of a cluster share the work, as one of them sees it.
pub trait Topology: Send + Sync {
    /// Commits. `number`: the outcome can be asked for by it; 0: it cannot. The caller has the log flushed next.
    fn commit(&self, node: &dyn Local, txn: Box<Txn>, number: u64) -> Committing;

    /// Where the snapshots of a transaction stand. `autocommit_read`: it is a single read-only statement.
    fn stand(&self, autocommit_read: bool) -> Rule;

    /// What a reply waits for that shows the state at `at`.
    fn shown(&self, node: &dyn Local, at: Position) -> Position;

    /// Gives the next number of a sequence.
    fn draw(&self, node: &dyn Local, sequence: &SequenceDef) -> Result<Drawn>;

    /// Whether this kind of work runs at this node.
    fn runs(&self, work: Work) -> bool;
}

/// A node that decides its commits itself, as long as its order is open.
pub struct Here {
    open: bool,
}

impl Topology for Here {
    #[inline]
    fn commit(&self, node: &dyn Local, txn: Box<Txn>, number: u64) -> Committing {
        Committing::Done(node.commit_here(txn, number))
    }

    fn stand(&self, autocommit_read: bool) -> Rule {
        match autocommit_read {
            true => Rule::Published,
            false => Rule::Installed,
        }
    }

    fn shown(&self, node: &dyn Local, at: Position) -> Position {
        match node.is_open() {
            true => at,
            // A session that was let in before the node is open knows what it sees.
            false => Position::ZERO,
        }
    }

    fn draw(&self, node: &dyn Local, sequence: &SequenceDef) -> Result<Drawn> {
        node.draw_here(sequence)
    }

    #[inline]
    fn runs(&self, _: Work) -> bool {
        self.open
    }
}

/// A replica: it commits what has written nothing, and shows what its primary has published.
pub struct Follower;

impl Topology for Follower {
    fn commit(&self, node: &dyn Local, txn: Box<Txn>, number: u64) -> Committing {
        SEALED.commit(node, txn, number)
    }

    /// The session gives it its snapshots (`Txn::set_read_position`); without that it stands where a primary's does.
    fn stand(&self, autocommit_read: bool) -> Rule {
        SEALED.stand(autocommit_read)
    }

    /// Its readers may stand above what it shows, where the primary has published all that they see.
    fn shown(&self, node: &dyn Local, at: Position) -> Position {
        at.min(node.published())
    }

    fn draw(&self, node: &dyn Local, sequence: &SequenceDef) -> Result<Drawn> {
        SEALED.draw(node, sequence)
    }

    fn runs(&self, _: Work) -> bool {
        false
    }
}

/// A replica that runs changes of rows and has its primary certify them.
pub struct Site;

impl Topology for Site {
    fn commit(&self, node: &dyn Local, txn: Box<Txn>, number: u64) -> Committing {
        match txn.has_writes() {
            true => node.commit_elsewhere(txn, number),
            false => REPLICA.commit(node, txn, number),
        }
    }

    fn stand(&self, autocommit_read: bool) -> Rule {
        REPLICA.stand(autocommit_read)
    }

    fn shown(&self, node: &dyn Local, at: Position) -> Position {
        REPLICA.shown(node, at)
    }

    fn draw(&self, node: &dyn Local, sequence: &SequenceDef) -> Result<Drawn> {
        Ok(node.draw_from_range(sequence))
    }

    fn runs(&self, work: Work) -> bool {
        work == Work::Rows
    }
}

/// A site's.
pub static SITE: Site = Site;

/// A primary's.
pub static PRIMARY: Here = Here { open: true };

/// One's that has handed over.
pub static SEALED: Here = Here { open: false };

/// A replica's.
pub static REPLICA: Follower = Follower;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Node, NodeOptions, Role};
    use base::SqlState;
    use txn::TxnOptions;

    fn sequence() -> SequenceDef {
        SequenceDef {
            id: 77,
            namespace: 2200,
            name: "s".into(),
            owner: 10,
            type_oid: 20,
            start: 1,
            increment: 1,
            min: 1,
            max: i64::MAX,
            cycle: false,
            cache: 1,
            owned_by: None,
            restart: None,
            generation: 0,
            acl: vec![],
        }
    }

    const WORK: [Work; 4] = [Work::Write, Work::Rows, Work::Lock, Work::Notify];

    /// A number, and its range's position in the log.
    fn number(node: &Node) -> Result<(i64, Position)> {
        match node.nextval(&sequence())? {
            Drawn::Number(n, at) => Ok((n, at)),
            Drawn::Coming(_) => panic!("no site"),
        }
    }

    fn refused(node: &Node) -> SqlState {
        let refused = number(node).expect_err("it takes no writes");
        refused.code()
    }

    fn read_only(node: &Node) -> Result<CommitWait> {
        let options = TxnOptions {
            read_only: true,
            ..TxnOptions::default()
        };
        let mut txn = node.begin(options, true);
        txn.begin_statement().expect("a statement");
        match node.topology().commit(node, Box::new(txn), 0) {
            Committing::Done(outcome) => outcome,
            Committing::Later(_) => panic!("nothing was written"),
        }
    }

    #[test]
    fn a_primary_runs_everything_and_one_that_has_handed_over_reads_only() {
        let scratch = tempfile::tempdir().expect("a directory");
        let node = Node::open(scratch.path(), NodeOptions::default()).expect("a node");
        assert!(WORK.iter().all(|w| node.topology().runs(*w)));
        assert_eq!(node.topology().stand(true), Rule::Published);
        assert_eq!(node.topology().stand(false), Rule::Installed);
        let (first, at) = number(&node).expect("a number");
        assert_eq!(first, 1);
        assert!(at > Position::ZERO, "the range has a position in the log");
        read_only(&node).expect("it may read");

        let heir = node.shipping().join("heir", true, "", Position::ZERO, 0);
        node.hand_over(heir, "heir").expect("it asks");
        assert!(!WORK.iter().any(|w| node.topology().runs(*w)));
        read_only(&node).expect("it may read still");
        // The range that was reserved before is of no use here: the next numbers are the new primary's.
        assert_eq!(refused(&node), SqlState::READ_ONLY_SQL_TRANSACTION);
    }

    #[test]
    fn a_replica_follows_and_runs_no_writes_until_it_is_promoted() {
        let scratch = tempfile::tempdir().expect("a directory");
        drop(Node::open(scratch.path(), NodeOptions::default()).expect("a node"));
        let options = NodeOptions {
            replica: true,
            ..NodeOptions::default()
        };
        let node = Node::open(scratch.path(), options).expect("a replica");
        assert_eq!(node.role(), Role::Replica);
        assert!(!WORK.iter().any(|w| node.topology().runs(*w)));
        let above = node.recovered_end().next();
        let shown = node.marks().published.get();
        assert!(shown < above);
        assert_eq!(node.topology().shown(&node, above), shown);
        assert_eq!(refused(&node), SqlState::READ_ONLY_SQL_TRANSACTION);

        node.promote().expect("a primary");
        assert!(WORK.iter().all(|w| node.topology().runs(*w)));
        assert_eq!(number(&node).expect("a number").0, 1);
    }
}
