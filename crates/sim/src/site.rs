//! Sites: transactions that run at a replica, whose primary certifies them (docs/sites.md). What travels is late, lost and doubled; a verdict that
//! does not come is asked for again, over another connection, also of another primary.
//!
//! ```text
//! act_at_site ─▶ statements, replay between them ─▶ Certify ══▶ Node::certify_in ─▶ published ─▶ Verdict ══▶ told
//!                                   ask_again ──┘ (until told; the log that is followed may tell, and a site that was promoted looks into its own)
//! ```
//! A verdict counts when it comes over the connection that the site has. A candidate that is still on its way over an older one may
//! arrive all the same, after the newer one: that is what the number is for. A connection ends with the process at either end.
//!
//! | holds | looked at |
//! |---|---|
//! | no number commits twice in one history | at each commit |
//! | what a transaction replaced stood in the history just before its commit; at SERIALIZABLE, so did what it read | at each commit |
//! | what a site is told as committed was committed there under its number | when it is told |
//! | what was told as refused, in a term of the history at the end, is not in that history | at the end |
//! | each site that is still there is told of all that it asked | before the end |
//! | what the primary acknowledged is, as far as its promise goes | by the commit's own promise (`invariants::durability`) |
//! | what a site shows is a state of the history | as of any replica (`invariants::snapshots`) |
//!
//! Left out on purpose: waiting for row locks (a client that would have to wait gives up), split values, and commits shown early, which there are
//! none of yet.

use base::{Candidate, Isolation, KeyRange, Position, SqlState, Value};
use node::{Node, Outcome, Verdict};
use replica::ship::term_at;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use store::pin;
use txn::{Access, Direction, Durability, Scan, Stop, TableHandle, Txn, TxnOptions};

use crate::clients::IDS;
use crate::forward::{Read, options};
use crate::machine::{Running, table};
use crate::model::{Promise, Terms};
use crate::primary::{Pending, Primary};
use crate::schema::{TABLE, key};
use crate::world::{What, World};

/// What a site is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    Committed(Position),
    Refused,
    /// It is not known any more.
    Unknown,
}

/// What happens on the way to a verdict. `sent` counts the connections that a number went over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certifying {
    /// A candidate arrives at a node, in this life of it; its site follows this term.
    Asked {
        to: usize,
        life: u64,
        number: u64,
        sent: u32,
        term: u64,
    },
    /// A verdict comes from a node.
    Answered {
        from: usize,
        number: u64,
        sent: u32,
        /// ... and the term that it leads.
        told: (Told, u64),
    },
    /// A site without a verdict looks what to do.
    Again { number: u64 },
}

/// A transaction that a client has open at a site.
struct Open {
    site: usize,
    node: Weak<Node>,
    txn: Txn,
    /// What it read of others.
    read: Vec<Read>,
    /// The rows that it changed.
    mine: Vec<i64>,
}

/// A candidate, and what has become of it.
struct Asked {
    site: usize,
    node: Weak<Node>,
    /// Holds its row locks until it is told.
    txn: Option<Txn>,
    candidate: Vec<u8>,
    after: Position,
    /// What has to stand in the history just before it.
    stood: Vec<Read>,
    /// Connections that it has been sent over.
    sent: u32,
    told: Option<Told>,
    /// The term of the primary that said so.
    told_in: u64,
}

/// Transactions of all sites.
#[derive(Default)]
pub struct Sites {
    /// Replicas are sites.
    pub on: bool,
    open: Vec<Open>,
    asked: BTreeMap<u64, Asked>,
    /// Commits by number: position and term.
    commits: BTreeMap<u64, Vec<(Position, u64)>>,
}

impl Sites {
    /// A machine came back with this history up to `last`; what its term had above is gone.
    pub fn crashed(&mut self, term: u64, last: Position) {
        let gone = |c: &(Position, u64)| c.1 == term && c.0 > last;
        for all in self.commits.values_mut() {
            all.retain(|c| !gone(c));
        }
    }
}

/// Microseconds after which a site asks again.
const PATIENCE: u64 = 40_000;

/// How often a statement starts anew, as the server's session does.
const TRIES: usize = 3;

fn is_of(terms: &Terms, (at, term): (Position, u64)) -> bool {
    term_at(terms, at) == term
}

impl World {
    /// A client does something at a site: begins a transaction, goes on with one, or commits it.
    pub fn act_at_site(&mut self, i: usize) {
        let here: Vec<usize> = (0..self.sites.open.len())
            .filter(|n| self.sites.open[*n].site == i)
            .collect();
        if here.is_empty() || here.len() < 3 && self.dice.percent(50) {
            return self.begin_at_site(i);
        }
        let which = here[self.dice.below(here.len() as u64) as usize];
        let open = self.sites.open.swap_remove(which);
        if !self.is_there(i, &open.node) {
            return;
        }
        match self.dice.percent(30) {
            true => self.go_on_at_site(open),
            false => self.commit_at_site(open),
        }
    }

    /// Whether the node at this machine is this one still.
    fn is_there(&self, i: usize, node: &Weak<Node>) -> bool {
        let there = match &self.machines[i].up {
            Some(Running::Primary(p)) => Some(&p.node),
            Some(Running::Follower(f)) => f.node.as_ref(),
            None => None,
        };
        there.is_some_and(|n| std::ptr::eq(Arc::as_ptr(n), node.as_ptr()))
    }

    fn begin_at_site(&mut self, i: usize) {
        let isolation = match self.dice.below(4) {
            0 => Isolation::ReadCommitted,
            1 => Isolation::RepeatableRead,
            _ => Isolation::Serializable,
        };
        let options = TxnOptions {
            isolation,
            // As in SQL, and as in the library.
            locking: isolation == Isolation::ReadCommitted || self.dice.percent(70),
            ..options()
        };
        let begun = self.on_node(i, |_, up| {
            let Running::Follower(f) = up else {
                return None;
            };
            let node = f.node.as_ref().filter(|_| f.shown().is_some())?;
            node.manager().set_site(true);
            Some(Open {
                site: i,
                node: Arc::downgrade(node),
                txn: node.begin(options, false),
                read: Vec::new(),
                mine: Vec::new(),
            })
        });
        if let Some(open) = begun.flatten() {
            self.go_on_at_site(open);
        }
    }

    /// One more statement.
    fn go_on_at_site(&mut self, mut open: Open) {
        let i = open.site;
        let went = self.on_node(i, |w, up| {
            let Running::Follower(f) = up else {
                return None;
            };
            let (at, node) = (f.shown()?, f.node.clone()?);
            w.statement_at_site(&node, at, &mut open)
        });
        if went.flatten().is_some() {
            self.sites.open.push(open);
        }
    }

    /// Reads and changes a few rows; none: the client gives up.
    fn statement_at_site(&mut self, node: &Arc<Node>, at: Position, open: &mut Open) -> Option<()> {
        let table = table(node, TABLE);
        let (read, mine) = (open.read.len(), open.mine.len());
        let t = &mut open.txn;
        if t.wants_snapshot() {
            t.set_read_position(at);
        }
        for _ in 0..TRIES {
            // The session waits for it.
            if t.awaits() > at || t.begin_statement().is_err() {
                return None;
            }
            let ran = self.rows_at_site(&table, t, (&mut open.read, &mut open.mine));
            match ran.and_then(|()| t.end_statement()) {
                Ok(()) => return Some(()),
                Err(Stop::Restart) => {
                    t.rollback_statement();
                    open.read.truncate(read);
                    open.mine.truncate(mine);
                }
                Err(_) => return None,
            }
        }
        None
    }

    fn rows_at_site(
        &mut self,
        table: &TableHandle,
        t: &mut Txn,
        (read, mine): (&mut Vec<Read>, &mut Vec<i64>),
    ) -> txn::Result<()> {
        let at = t.snapshot().expect("a statement has begun");
        let mut note = |mine: &[i64], id: i64| {
            if mine.contains(&id) {
                return;
            }
            let (key, guard) = (key(id), pin());
            let record = table.storage.primary.get(&key, &guard);
            let row = record.and_then(|r| r.row_at(at, &guard).map(<[u8]>::to_vec));
            read.push(((table.storage.id, key), row));
        };
        if self.dice.percent(15) {
            let first = self.dice.below(IDS) as i64;
            let range = KeyRange {
                lo: Bound::Included(key(first).into()),
                hi: Bound::Excluded(key(first + 4).into()),
            };
            let mut scan = Scan::new(Access::Primary, range, Direction::Forward);
            while t.scan(table, &mut scan, 3, &mut |_, _| Ok(()))? {}
            (first..first + 4).for_each(|id| note(mine, id));
        }
        for _ in 0..1 + self.dice.below(2) {
            let id = self.dice.below(IDS) as i64;
            let row = [Value::Int8(id), Value::Int8(self.dice.below(50) as i64)];
            let there = t.get(table, &key(id), |_| ())?.is_some();
            note(mine, id);
            match self.dice.below(10) {
                0..=1 => continue,
                2..=3 if there => drop(t.delete(table, &key(id))?),
                _ if there => t.update(table, &key(id), &row)?,
                _ => t.insert(table, &row)?,
            }
            mine.push(id);
        }
        Ok(())
    }

    fn commit_at_site(&mut self, open: Open) {
        let Open {
            site,
            node,
            txn,
            read,
            ..
        } = open;
        let number = self.sites.asked.len() as u64 + 1;
        if !txn.has_writes() {
            return;
        }
        let Ok(candidate) = txn.candidate(number) else {
            return;
        };
        let Some(here) = node.upgrade() else { return };
        let table = table(&here, TABLE);
        let mut stood = match txn.isolation() {
            Isolation::Serializable => read,
            _ => Vec::new(),
        };
        stood.extend(replaced(&candidate, &table));
        self.say(|| {
            format!(
                "site {site}: number {number}, {:?} at {}, changes {} rows",
                txn.isolation(),
                candidate.footprint.snapshot,
                candidate.footprint.writes.len()
            )
        });
        let asked = Asked {
            site,
            node,
            after: candidate.footprint.snapshot,
            candidate: candidate.encode(),
            txn: Some(txn),
            stood,
            sent: 0,
            told: None,
            told_in: 0,
        };
        self.sites.asked.insert(number, asked);
        self.ask(number);
    }

    /// The candidate goes to the primary that its site follows, over a connection that it has not gone over yet.
    fn ask(&mut self, number: u64) {
        let asked = self.sites.asked.get_mut(&number).expect("it asks");
        asked.sent += 1;
        let (site, sent) = (asked.site, asked.sent);
        let to = match &self.machines[site].up {
            Some(Running::Follower(f)) => f.node.as_ref().map(|n| {
                let followed = n.following().map_or(0, |f| f.followed());
                (f.target, followed)
            }),
            _ => None,
        };
        if let Some((to, term)) = to {
            let life = self.machines[to].life;
            self.say(|| format!("site {site} asks node {to} of number {number}, time {sent}"));
            self.report.sent_again += u64::from(sent > 1);
            for _ in 0..1 + u64::from(self.dice.percent(15)) {
                let late = self.dice.percent(25);
                let delay = 100 + self.dice.below(if late { 90_000 } else { 900 });
                let asked = Certifying::Asked {
                    to,
                    life,
                    number,
                    sent,
                    term,
                };
                self.later(delay, What::Site(asked));
            }
        }
        self.look_again(number);
    }

    /// The node where something happens.
    pub fn certifying(&mut self, what: Certifying) -> Option<usize> {
        match what {
            Certifying::Asked {
                to,
                life,
                number,
                sent,
                term,
            } => {
                self.certify((to, life), number, sent, term);
                Some(to)
            }
            Certifying::Answered {
                from,
                number,
                sent,
                told,
            } => {
                self.verdict_arrives(from, number, sent, told);
                None
            }
            Certifying::Again { number } => {
                self.ask_again(number);
                None
            }
        }
    }

    /// A site without a verdict looks what to do.
    fn ask_again(&mut self, number: u64) {
        let asked = &self.sites.asked[&number];
        let (site, after) = (asked.site, asked.after);
        if asked.told.is_some() || !self.is_there(site, &asked.node) {
            return;
        }
        if env::fault::planted("site.pending_aborted") {
            // The planted bug: the connection is lost, so the transaction is taken for rolled back.
            let terms = self.terms_of(site).unwrap_or_default();
            return self.told(number, (Told::Refused, term_at(&terms, Position::MAX)));
        }
        let own = self.on_node(site, |_, up| match up {
            Running::Primary(p) => Some((p.node.outcome(number, after), p.term)),
            Running::Follower(f) => {
                let node = f.node.as_ref()?;
                let at = node.committed_at(number)?;
                let shown = at <= node.marks().published.get();
                shown.then_some((Outcome::Committed(at), 0))
            }
        });
        let Some((own, term)) = own.flatten() else {
            return self.ask(number);
        };
        let told = match own {
            Outcome::Committed(at) => Told::Committed(at),
            Outcome::Aborted => Told::Refused,
            Outcome::Unknown => Told::Unknown,
            Outcome::Running => return self.look_again(number),
        };
        self.told(number, (told, term));
    }

    fn look_again(&mut self, number: u64) {
        self.later(PATIENCE, What::Site(Certifying::Again { number }));
    }

    /// A candidate arrives at a node, in this life of it.
    fn certify(&mut self, (to, life): (usize, u64), number: u64, sent: u32, term: u64) {
        let asked = &self.sites.asked[&number];
        let (site, bytes) = (asked.site, asked.candidate.clone());
        if !self.net.reaches(site, to) || self.machines[to].life != life {
            return;
        }
        self.on_node(to, |w, up| {
            let Running::Primary(p) = up else { return };
            if p.node.term() != term {
                return;
            }
            let candidate = Candidate::decode(&bytes).expect("just encoded");
            let made = w.certify_at(p, &candidate, sent > 1);
            let told = match made {
                Ok(Verdict::Committed(held)) => {
                    p.certified.push((number, sent, held));
                    return w.settled(to, p);
                }
                Ok(Verdict::Running) => return,
                Err(e) if e.code() == SqlState::CANNOT_CONNECT_NOW => return,
                Err(e) if e.code() == SqlState::STATEMENT_COMPLETION_UNKNOWN => Told::Unknown,
                Err(e) => {
                    w.say(|| format!("number {number} is refused: {e}"));
                    Told::Refused
                }
            };
            w.verdict(to, number, sent, (told, term));
        });
    }

    fn certify_at(
        &mut self,
        p: &mut Primary,
        candidate: &Candidate,
        again: bool,
    ) -> base::Result<Verdict> {
        let number = candidate.number;
        let node = p.node.clone();
        let after = match again {
            true => candidate.footprint.snapshot,
            false => Position::MAX,
        };
        let certify =
            |order: &dyn txn::CommitOrder| node.certify_in(candidate, Durability::On, after, order);
        let (verdict, made) = self.recorded(p, Vec::new(), certify)?;
        if let (Verdict::Committed(held), Some(at)) = (verdict, made) {
            let promise = Promise::Policy;
            p.pending.push(Pending { at, held, promise });
            self.check_certified(p, number, at);
        }
        Ok(verdict)
    }

    /// A candidate has committed at `at`.
    fn check_certified(&mut self, p: &Primary, number: u64, at: Position) {
        self.say(|| format!("number {number} commits at {at}"));
        let all = self.sites.commits.entry(number).or_default();
        let twice = all.iter().find(|c| is_of(&p.terms, **c));
        assert!(
            twice.is_none(),
            "number {number} commits at {at}, and has committed at {twice:?}"
        );
        all.push((at, p.term));
        let before = self.model.rows(&p.terms, at.prev());
        for (name, row) in &self.sites.asked[&number].stood {
            assert!(
                before.get(name) == row.as_ref(),
                "number {number} commits at {at} and had found {row:?} under {name:?} at its site, but before it stood {:?}",
                before.get(name)
            );
        }
    }

    /// What a primary has made durable of what sites have asked.
    pub fn certified(&mut self, i: usize, p: &mut Primary) {
        let node = p.node.clone();
        let (done, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut p.certified)
            .into_iter()
            .partition(|c| node.is_published(c.2));
        p.certified = waiting;
        for (number, sent, held) in done {
            let told = Told::Committed(held.position());
            self.verdict(i, number, sent, (told, p.term));
        }
    }

    fn verdict(&mut self, from: usize, number: u64, sent: u32, told: (Told, u64)) {
        let delay = 100 + self.dice.below(900);
        if !self.dice.percent(15) {
            let answered = Certifying::Answered {
                from,
                number,
                sent,
                told,
            };
            self.later(delay, What::Site(answered));
        }
    }

    /// A verdict arrives at its site.
    fn verdict_arrives(&mut self, from: usize, number: u64, sent: u32, told: (Told, u64)) {
        let asked = &self.sites.asked[&number];
        let alive = self.is_there(asked.site, &asked.node);
        let counts = asked.sent == sent && asked.told.is_none();
        if alive && counts && self.net.reaches(asked.site, from) {
            self.told(number, told);
        }
    }

    fn told(&mut self, number: u64, (told, term): (Told, u64)) {
        self.say(|| format!("number {number} is told: {told:?}"));
        match told {
            Told::Committed(at) => {
                self.report.certified += 1;
                let all = self.sites.commits.get(&number);
                let there = all.is_some_and(|all| all.iter().any(|c| c.0 == at));
                assert!(
                    there || self.report.forgiven > 0 || self.config.weak,
                    "number {number} is told as committed at {at}, where it has not: {all:?}"
                );
            }
            Told::Refused => self.report.not_certified += 1,
            Told::Unknown => {}
        }
        let asked = self.sites.asked.get_mut(&number).expect("it asked");
        (asked.told, asked.told_in) = (Some(told), term);
        asked.txn = None;
    }

    /// Clients give up what they have open.
    pub fn leave_sites(&mut self) {
        self.sites.open.clear();
    }

    /// Whether each site that is the one that asked has been told.
    pub fn are_sites_told(&self) -> bool {
        let mut asked = self.sites.asked.values();
        asked.all(|a| a.told.is_some() || !self.is_there(a.site, &a.node))
    }

    /// At the end: what was refused has not happened.
    pub fn check_sites(&self, terms: &Terms, last: Position) {
        for (number, asked) in &self.sites.asked {
            let none = Vec::new();
            let all = self.sites.commits.get(number).unwrap_or(&none);
            // A term that was cut off took its verdicts along.
            let counts = terms.iter().any(|t| t.0 == asked.told_in);
            let mut here = all.iter().filter(|c| is_of(terms, **c) && c.0 <= last);
            let found = here.next();
            assert!(
                found.is_none() || !counts || asked.told != Some(Told::Refused),
                "number {number} was told as refused, and has committed at {found:?}"
            );
        }
    }
}

/// What the writes of a candidate replace, by the versions that they name.
fn replaced(candidate: &Candidate, table: &TableHandle) -> Vec<Read> {
    let guard = pin();
    let writes = candidate.footprint.writes.iter();
    writes
        .map(|w| {
            let record = table.storage.primary.get(&w.key, &guard);
            let row = record.and_then(|r| r.row_at(w.overwrites, &guard));
            let row = row.filter(|_| w.existed).map(<[u8]>::to_vec);
            ((w.storage, w.key.to_vec()), row)
        })
        .collect()
}
