//! A member's server: what it does with the copy when the members ask it, and for its clients.
//!
//! ```text
//! write ──▶ log ──▶ the other copies ──▶ how much they hold ──▶ acknowledged, with so many copies as the members agree on, under the lease
//! ```
//! Left out on purpose: clients that wait. What is acknowledged is counted ([`super::rules`]).

use super::copy::Copy;
use super::world::{Node, World, primary_of};
use cluster::member::{Data, Leads};
use cluster::time::sleep;
use cluster::waiting::Seen;
use cluster::{Answer, Command, End, NodeId, RunningMember, Testimony};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The copy as its member sees it.
pub struct Held {
    pub world: Arc<World>,
    pub node: Arc<Node>,
}

impl Data for Held {
    fn promise(&self, term: u64) -> io::Result<Answer> {
        let mut copy = self.node.copy.lock();
        let Some(standing) = copy.standing.asked(term) else {
            return Ok(Answer::Later(copy.standing.promised()));
        };
        copy.standing = standing;
        copy.step_down(term);
        let end = End {
            term: copy.term,
            position: copy.log.len() as u64,
        };
        let line = format!("n{} promises term {term}: {end:?}", self.node.id);
        self.world.executor.note(&line);
        Ok(Answer::Promised(Testimony::from(end)))
    }

    fn lead(&self, term: u64) -> io::Result<bool> {
        let (world, id) = (&self.world, self.node.id);
        let mut copy = self.node.copy.lock();
        if copy.unable > world.executor.time() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let Some(standing) = copy.standing.asked(term) else {
            return Ok(false);
        };
        copy.standing = standing;
        let begins = copy.begin(term);
        world.executor.note(&format!("n{id} leads term {term}"));
        world.rules.lock().leads(id, term, begins, &copy.log);
        Ok(true)
    }

    fn leads(&self, term: u64) -> Leads {
        match &self.node.copy.lock().leads {
            Some(l) if l.term == term => Leads::Yes,
            _ => Leads::No,
        }
    }

    fn follow(&self, _leader: NodeId, term: u64) -> io::Result<()> {
        self.node.copy.lock().step_down(term);
        Ok(())
    }

    fn seen(&self) -> (Seen, u64) {
        let nothing = Seen {
            waits: false,
            hold_all: 0,
            keep_up: 0,
            waited: 0,
        };
        let Some(member) = self.node.member() else {
            return (nothing, 0);
        };
        let (wanted, copies) = rule(&member, self.node.id);
        let mut copy = self.node.copy.lock();
        let len = copy.log.len();
        let Some(l) = &mut copy.leads else {
            return (nothing, len as u64);
        };
        (l.seen(wanted, &copies, len), len as u64)
    }
}

/// How many copies a commit waits for, and which there are.
fn rule(member: &RunningMember, me: NodeId) -> (usize, Vec<NodeId>) {
    let catalogue = member.consensus().catalogue();
    let copies = catalogue.borrow().replicas_of(me).collect();
    (member.wanted(), copies)
}

/// What the server of this node does for its clients, as long as its process lives.
pub async fn serve(world: Arc<World>, node: Arc<Node>) {
    loop {
        let pause = 10 + world.executor.below(40);
        sleep(Duration::from_millis(pause)).await;
        let Some(member) = node.member() else {
            continue;
        };
        if world.executor.below(100) == 0 && !world.is_mended() {
            hand_over(&world, &node, &member).await;
        }
        read(&world, &node, &member);
        write(&world, &node, &member);
        release(&world, &node, &member);
    }
}

/// One strong read.
fn read(world: &World, node: &Node, member: &RunningMember) {
    if primary_of(node, member).is_none() {
        return;
    }
    world.report.lock().reads += 1;
    let copy = node.copy.lock();
    world.rules.lock().reads(node.id, &copy.log);
}

/// One write, and the log on its way to the other copies.
fn write(world: &Arc<World>, node: &Arc<Node>, member: &RunningMember) {
    let (term, log) = {
        let mut copy = node.copy.lock();
        let Some(term) = copy.leads.as_ref().map(|l| l.term) else {
            return;
        };
        let number = world.rules.lock().next_write();
        copy.log.push((term, number));
        (term, copy.log.clone())
    };
    let (_, copies) = rule(member, node.id);
    for to in copies {
        let (from, log) = (node.id, log.clone());
        world.post(from, to, move |world| {
            let Some(node) = world.node(to) else { return };
            let has = node.copy.lock().append(term, log);
            let Some(has) = has else { return };
            world.post(to, from, move |world| acked(&world, from, term, (to, has)));
        });
    }
}

/// A copy says how much of the log of this term it holds.
fn acked(world: &World, leader: NodeId, term: u64, (of, has): (NodeId, usize)) {
    let Some(node) = world.node(leader) else {
        return;
    };
    let Some(member) = node.member() else { return };
    if let Some(l) = &mut node.copy.lock().leads
        && l.term == term
    {
        let known = l.acked.entry(of).or_default();
        *known = has.max(*known);
    }
    release(world, &node, &member);
}

/// Acknowledges what enough copies hold.
fn release(world: &World, node: &Node, member: &RunningMember) {
    if primary_of(node, member).is_none() {
        return;
    }
    let (wanted, copies) = rule(member, node.id);
    let mut copy = node.copy.lock();
    let Copy { log, leads, .. } = &mut *copy;
    let Some(l) = leads else { return };
    l.follow_rule(wanted, &copies);
    let reach = l.reach(wanted, &copies, log.len());
    if reach > l.acknowledged {
        let more = &log[l.acknowledged..reach];
        world.rules.lock().acknowledges(node.id, l.term, more);
        l.acknowledged = reach;
    }
}

/// The primary makes way for a copy that has all of its log, and proposes that one.
async fn hand_over(world: &World, node: &Node, member: &RunningMember) {
    let Some(term) = primary_of(node, member) else {
        return;
    };
    let (_, copies) = rule(member, node.id);
    let to = {
        let mut copy = node.copy.lock();
        let Some(standing) = copy.standing.asked(term + 1) else {
            return;
        };
        let (len, leads) = (copy.log.len(), copy.leads.as_ref());
        let has_all = |c: &&NodeId| leads.is_some_and(|l| l.acked.get(c) == Some(&len));
        let Some(to) = copies.iter().find(has_all).copied() else {
            return;
        };
        copy.standing = standing;
        copy.leads = None;
        to
    };
    member.step_down(term + 1);
    world
        .executor
        .note(&format!("n{} hands over to n{to}", node.id));
    world.report.lock().handed_over += 1;
    let proposed = member.propose(Command::HandOver { term, to }).await;
    if proposed.is_none_or(|p| p.is_err()) {
        // The members choose, if they have not agreed on it after all. Told until there is an answer, as a server does: where nothing is promised they
        // do not begin by themselves.
        let begin = Command::Begin {
            after: term,
            above: 0,
        };
        while node.member().is_some() && member.propose(begin.clone()).await.is_none() {
            sleep(Duration::from_millis(100)).await;
        }
    }
}
