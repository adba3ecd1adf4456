//! A strong read sees everything that was acknowledged before it arrived (one that may be old: so much earlier), at whatever node (SCC §4.1), and of what it reads exactly the state at
//! its timestamp, though replay has not come so far (§4.2). With a lease the timestamp may lie above what is published: of what it reads, nothing unpublished is seen. Commits that a fail-over may lose, and has lost, are not asked for; nor is
//! anything when an operator was wrong about what is down.

use base::Position;
use node::Node;
use replica::ship::fork;
use store::{Snapshot, pin};

use crate::machine::table;
use crate::model::Terms;
use crate::reads::StrongRead;
use crate::schema::STOCK;
use crate::world::World;

use super::splits::{Stock, stocks_at};

impl World {
    /// A strong read reads at its snapshot, at a node.
    pub fn see(&mut self, r: &StrongRead, node: &Node, s: &Snapshot) {
        let (at, terms) = (s.position(), node.terms());
        self.report.strong += 1;
        self.report.bounded += u64::from(r.may_be_old());
        self.say(|| format!("node {}: a strong read at {at}", r.node));
        if !self.report.false_premises.is_empty() {
            return;
        }
        let lost = |k: &&(base::Position, u64)| self.model.is_lost(**k);
        let stale = r.acknowledged.iter().filter(|k| !lost(k));
        let mut stale = stale.filter(|k| k.0 > at || replica::ship::term_at(&terms, k.0) != k.1);
        if let Some((unseen, term)) = stale.next() {
            panic!(
                "a strong read at node {} stands at {at}, and {unseen} of term {term} was acknowledged before it arrived",
                r.node
            );
        }
        if r.table == STOCK {
            return self.check_stocks(r, node, &terms, at);
        }
        self.check_published(r, node, &terms, at);
        let model = self.model.rows(&terms, at);
        let guard = pin();
        let storage = &table(node, r.table).storage;
        let row = |key: &[u8]| {
            let record = storage.primary.get(key, &guard)?;
            record.row_at(at, &guard).map(<[u8]>::to_vec)
        };
        let ids = 0..crate::clients::IDS;
        let every: Vec<Vec<u8>> = ids.map(|id| crate::schema::key(id as i64)).collect();
        let keys = if r.keys.is_empty() { &every } else { &r.keys };
        for key in keys {
            let want = model.get(&(storage.id, key.clone()));
            assert!(
                row(key).as_ref() == want,
                "a strong read at node {} finds {:?} at {at} under {key:?}, the history has {want:?}",
                r.node,
                row(key),
            );
        }
    }

    /// Of the rows that a read sees none was changed above what a primary of this history has published.
    fn check_published(&self, r: &StrongRead, node: &Node, terms: &Terms, at: Position) {
        let all = self.published.values();
        let all = all.map(|(at, of)| fork(terms, of).min(*at));
        let most = all.max().unwrap_or(Position::ZERO);
        let most = most.max(node.marks().published.get());
        let storage = table(node, r.table).storage.id;
        let mut seen = self.model.written(terms, most, at);
        let seen = seen
            .find(|(_, name)| name.0 == storage && (r.keys.is_empty() || r.keys.contains(&name.1)));
        assert!(
            seen.is_none(),
            "a strong read at node {} shows {seen:?} at {at}, and {most} is published",
            r.node
        );
    }

    /// The same of stocks, whose values the model knows by what clients did.
    fn check_stocks(&self, r: &StrongRead, node: &Node, terms: &Terms, at: Position) {
        let model = self.model.values(terms, at);
        let found = stocks_at(node, at);
        for id in 0..crate::values::IDS as i64 {
            if !r.keys.is_empty() && !r.keys.contains(&crate::schema::key(id)) {
                continue;
            }
            let value = found.get(&id).and_then(Stock::value);
            assert!(
                value.as_ref() == model.get(&id),
                "a strong read at node {} finds {value:?} of stock {id} at {at}, the history has {:?}",
                r.node,
                model.get(&id)
            );
        }
    }
}
