//! What operators do, and what breaks: crashes, nodes that end and start in their process, cuts, planned and forced switches, and the mending at the end.
//!
//! A forced promotion rests on a premise, that the old primary is down. Operators are wrong about it sometimes, and old primaries
//! are started again by whoever does not know better: both are reported, because then two terms may acknowledge at once.

use base::Position;
use env::PowerCut;
use node::Role;
use node::start_check::{self, Answer};
use replica::ship::{Ours, Stands, fork, stands, term_at};
use wal::DataDir;

use crate::follower::{Happens, heard};
use crate::machine::Running;
use crate::model::Terms;
use crate::primary::Primary;
use crate::world::{NODES, What, World};

impl World {
    /// Something bad, or something an operator does.
    pub fn chaos(&mut self) {
        let i = self.dice.below(NODES as u64) as usize;
        match self.dice.below(100) {
            0..=29 if self.now.is_multiple_of(4) => self.start_again(i),
            0..=29 => self.crash(i),
            30..=44 => {
                self.net.cut = match self.net.cut.is_empty() {
                    true => vec![i],
                    false => vec![],
                };
                let cut = self.net.cut.clone();
                self.say(|| format!("the network is cut around {cut:?}"));
            }
            45..=59 => {
                let open = self.net.connections.iter().rposition(|c| c.alive);
                if let Some(c) = open {
                    self.say(|| format!("connection {c} breaks"));
                    self.hang_up(c, true);
                    self.hang_up(c, false);
                }
            }
            60..=79 => self.plan_switch(i),
            _ => self.force_switch(),
        }
    }

    /// The machine goes down; it comes back after a while.
    pub fn crash(&mut self, i: usize) {
        let Some(running) = self.machines[i].up.take() else {
            return;
        };
        let cut = match self.dice.below(3) {
            0 => PowerCut::KeepAll,
            1 => PowerCut::LoseAll,
            _ => PowerCut::Random(self.dice.next_u64()),
        };
        self.say(|| format!("node {i} goes down: {cut:?}"));
        self.holding.retain(|h| h.node != i);
        self.report.crashes += 1;
        if let Running::Primary(p) = &running {
            self.machines[i].led = Some(p.term);
            self.abandon(p);
        }
        if let Running::Follower(f) = &running
            && let Some(following) = f.node.as_ref().and_then(|n| n.following())
        {
            let marks = &following.marks;
            let lost = (marks.persisted.get(), marks.received.get());
            self.machines[i].forgot.push(lost);
        }
        let machine = &mut self.machines[i];
        let dir = match &running {
            Running::Primary(p) => Some(p.node.dir()),
            Running::Follower(f) => f.dir(),
        };
        let anchor = dir.and_then(|d| d.anchor());
        machine.up = Some(running);
        machine.had = machine.holds();
        machine.anchored = anchor.map_or(Position::ZERO, |a| a.position);
        machine.up = None;
        machine.disk.power_cut(cut);
        let lies = self.config.liar == Some(i) && machine.has_directory();
        if lies && self.dice.percent(self.config.forgets) {
            self.forget_tail(i);
        }
        let machine = &mut self.machines[i];
        machine.life += 1;
        machine.watched.forget();
        let life = machine.life;
        self.connections_end(i);
        let wait = 20_000 + self.dice.below(400_000);
        self.later(wait, What::Restart(i, life));
    }

    /// The connections of a node that is gone.
    fn connections_end(&mut self, i: usize) {
        for c in 0..self.net.connections.len() {
            let other = &self.net.connections[c];
            if other.replica == i || other.primary == i {
                // The other end hears of it, or has to find out.
                let (end, heard) = (other.replica == i, self.dice.percent(50));
                if heard && other.alive {
                    self.break_end(c, end);
                }
                self.net.connections[c].alive = false;
                self.net.connections[c].reset = true;
            }
        }
    }

    /// The node ends in its process and starts again there, as what it is told to be by then. No power is cut, and nothing is lost.
    pub fn start_again(&mut self, i: usize) {
        let node = match &self.machines[i].up {
            Some(Running::Primary(p)) => Some(p.node.clone()),
            Some(Running::Follower(f)) => f.node.clone(),
            None => return,
        };
        let Some(node) = node else {
            return self.crash(i);
        };
        self.say(|| format!("node {i} ends in its process"));
        self.report.ended += 1;
        self.sessions_end(i);
        let machine = &mut self.machines[i];
        machine.had = machine.holds();
        let anchor = node.dir().anchor();
        machine.anchored = anchor.map_or(Position::ZERO, |a| a.position);
        let marks = node.manager().marks.clone();
        let mut led = None;
        if let Some(Running::Primary(p)) = machine.up.take() {
            machine.led = Some(p.term);
            self.abandon(&p);
            led = Some((p.term, p.terms));
        }
        let all = match node.role() {
            Role::Replica => node.log_end(),
            _ => node.marks().installed.get(),
        };
        let Ok(ended) = node.end() else {
            panic!("something has node {i} still, which has ended");
        };
        assert!(
            ended.last >= all,
            "node {i} ended in its process with everything up to {all}, and its log ends at {}",
            ended.last
        );
        if let Some((term, terms)) = led {
            // While it ended it wrote what was installed. That published more by the rules of any flush: commits that were asked for as `local`, or all where
            // the policy asks for no replica. No client is told any more. But each group in the log names what was published when that group was
            // written, so replicas that are sent those groups later, by whoever leads this history then, show as much. They may: it is in
            // their history, and its primary had published it.
            self.has_published(term, &terms, marks.published.get());
        }
        let machine = &mut self.machines[i];
        machine.life += 1;
        machine.watched.forget();
        let life = machine.life;
        self.connections_end(i);
        self.later(1_000, What::Restart(i, life));
    }

    /// The machine comes back as what it was told to be.
    pub fn restart(&mut self, i: usize) {
        assert!(self.machines[i].up.is_none());
        let mine = match self.machines[i].has_directory() {
            true => self.machines[i].open(None).terms(),
            false => Vec::new(),
        };
        let told = self.machines[i].follows.is_some();
        let newer = self.newer_term(mine.last().map_or(0, |t| t.0));
        if !told && newer.is_some() && !self.config.sloppy {
            // Whoever starts it knows what has happened meanwhile.
            self.machines[i].follows = self.newest_leader;
        }
        let follows = self.machines[i].follows.is_some();
        let history = self.machines[i].has_history();
        let found = history.then(|| self.machines[i].start(follows, &self.config));
        let node = match found.transpose() {
            Ok(found) => found,
            Err(why) => return self.refused(i, why),
        };
        let last = node.as_ref().map_or(Position::ZERO, |n| n.recovered_end());
        if let Some(node) = node.as_ref().filter(|_| !follows)
            && !self.may_serve(i, node.dir(), last)
        {
            return;
        }
        let others = (0..NODES).filter(|j| *j != i);
        let mut others = others.filter_map(|j| self.machines[j].holds());
        let elsewhere = others.any(|(terms, end)| fork(&mine, &terms).min(end) > last);
        if let (Some(term), Some(_)) = (self.machines[i].led.take(), &node)
            && !(self.machines[i].lied && (told || elsewhere))
        {
            self.came_back(i, term, last);
        }
        self.say(|| format!("node {i} comes back, up to {last}"));
        let life = self.machines[i].life;
        // What a start that goes on with less has begun.
        let mine = node.as_ref().map_or(mine, |n| n.terms());
        self.machines[i].watched.renew(mine);
        let running = match (self.machines[i].follows, node) {
            (None, Some(node)) => {
                let term = node.term();
                let known = node.heard_term();
                let deposed = known > term;
                if let Some(newer) = self.newer_term(term).filter(|_| !deposed) {
                    self.false_premise(format!(
                        "node {i} was started as the primary of term {term} again after term {newer} began"
                    ));
                }
                let sealed = node.dir().sealed_for();
                if sealed
                    .unwrap_or_else(|e| panic!("the seal is not readable: {e}"))
                    .is_some()
                {
                    let sealed = node.begin_seal();
                    sealed.unwrap_or_else(|e| panic!("it stays sealed: {e}"));
                }
                if deposed {
                    self.say(|| format!("node {i} leads no more: it has heard of a newer term"));
                    node.depose(known);
                }
                Running::Primary(Box::new(Primary::new(node)))
            }
            (target, node) => {
                let f = self.start_follower(i, target.unwrap_or(0), node);
                Running::Follower(Box::new(f))
            }
        };
        self.machines[i].up = Some(running);
        self.later(1_000, What::Work(i, life));
        let pause = self.dice.below(20_000);
        self.later(pause, What::Time(i, life));
    }

    /// The disk forgets the last groups of the log, or all of them.
    fn forget_tail(&mut self, i: usize) {
        let ends = self.machines[i].group_ends();
        let most = if self.dice.percent(10) { 1_000 } else { 8 };
        let kept = ends
            .len()
            .saturating_sub(1 + self.dice.below(most) as usize);
        let keep = match kept {
            0 => Position::ZERO,
            n => ends[n - 1],
        };
        if !ends.is_empty() && self.machines[i].forget_above(keep) {
            self.report.tails += 1;
            self.false_premise(format!("the disk of node {i} forgot its log above {keep}"));
        }
    }

    /// The node does not start: its log is not all that it was. The operator starts it on an empty disk, to be filled anew.
    fn refused(&mut self, i: usize, why: String) {
        self.say(|| format!("node {i} does not start: {why}"));
        assert!(
            self.machines[i].lied,
            "node {i} does not start, and its disk never lied: {why}"
        );
        self.report.short += 1;
        self.start_empty(i);
    }

    fn start_empty(&mut self, i: usize) {
        let leader = (0..NODES).find(|j| *j != i && self.machines[*j].primary().is_some());
        let target = leader.or(self.newest_leader.filter(|j| *j != i));
        let target = target.unwrap_or((i + 1) % NODES);
        let m = &mut self.machines[i];
        m.empty_disk();
        (m.follows, m.led) = (Some(target), None);
        let life = m.life;
        self.later(20_000, What::Restart(i, life));
    }

    /// A primary that comes back asks the nodes that it reaches how far they are. Whether it may serve; else what is done about it is done.
    fn may_serve(&mut self, i: usize, dir: &DataDir, last: Position) -> bool {
        let (terms, lives) = (dir.terms(), dir.lives());
        let lives = lives.unwrap_or_else(|e| panic!("lives are not readable: {e}"));
        let ours = Ours {
            terms: &terms,
            lives: &lives,
            last,
        };
        let (mut answers, mut silent) = (Vec::new(), false);
        for j in (0..NODES).filter(|j| *j != i) {
            let m = &self.machines[j];
            let Some((theirs, end)) = m.holds() else {
                continue;
            };
            if m.up.is_some() && self.net.reaches(i, j) {
                let shown = match stands(ours, &theirs, end) {
                    Stands::Ahead { ours: at, .. } => self.machines[j].around(at),
                    _ => None,
                };
                if matches!(&shown, Some(a) if a.next.is_none() && a.checkpoint.is_none()) {
                    // What it holds is not on its disk yet: a node waits for that before it answers.
                    silent = true;
                    continue;
                }
                answers.push(Answer {
                    name: j.to_string(),
                    address: None,
                    terms: theirs,
                    last: end,
                    shown,
                });
            } else {
                silent |= fork(&terms, &theirs).min(end) > last;
            }
        }
        let here = |at| dir.around(at);
        let ahead = start_check::ahead(ours, dir.cluster(), here, &answers);
        let (ahead, doubted) = ahead.unwrap_or_else(|e| panic!("the log is not readable: {e}"));
        assert!(
            doubted.is_empty(),
            "node {i} does not believe nodes that are ahead: {doubted:?}"
        );
        if let Some(a) = ahead {
            self.say(|| format!("node {i} does not serve: it ends at {last}, {a:?}"));
            assert!(
                self.machines[i].lied,
                "node {i} does not serve, and its disk never lied: {a:?}"
            );
            self.report.ahead_found += 1;
            self.start_empty(i);
            return false;
        }
        let anchored = self.machines[i].anchored;
        assert!(
            last >= anchored,
            "node {i} serves up to {last}, and its anchor stood at {anchored}"
        );
        for a in &answers {
            let shared = fork(&terms, &a.terms).min(a.last);
            assert!(
                shared <= last,
                "node {i} serves up to {last}, and node {} can be reached and holds {shared} of its history",
                a.name
            );
        }
        if silent && self.machines[i].lied && self.config.forgets > 0 {
            // What neither the anchor nor a node that answers can show: two histories of one term, which the model does not have.
            self.say(|| format!("operator: node {i} waits until more nodes can be asked"));
            let life = self.machines[i].life;
            self.later(30_000, What::Restart(i, life));
            return false;
        }
        true
    }

    /// A term that began after this one.
    fn newer_term(&self, term: u64) -> Option<u64> {
        self.began.keys().copied().find(|t| *t > term)
    }

    /// A replica asks the primary to hand over to it.
    fn plan_switch(&mut self, i: usize) {
        let mut up = self.machines[i].up.take();
        if let Some(Running::Follower(f)) = &mut up
            && f.is_streaming()
        {
            self.say(|| format!("operator: node {i} shall take over"));
            self.replica(i, f, Happens::TakeOver { force: false });
        }
        self.machines[i].up = up;
    }

    /// The operator believes that the primary is down and promotes the replica that has most.
    fn force_switch(&mut self) {
        let leads: Vec<usize> = (0..NODES)
            .filter(|j| self.machines[*j].primary().is_some_and(|p| !p.is_sealing()))
            .collect();
        // Operators are wrong now and then.
        let wrong = self.config.sloppy && self.dice.percent(25);
        if !leads.is_empty() && !wrong {
            return;
        }
        let Some((best, considered)) = self.best_candidate(false) else {
            return;
        };
        // One that has handed over to somebody who did not take over is stopped first.
        let sealed = |j: &usize| self.machines[*j].primary().is_some_and(Primary::is_sealing);
        for j in (0..NODES).filter(sealed).collect::<Vec<_>>() {
            self.machines[j].follows = Some(best);
            self.demote(j);
        }
        if let Some(old) = leads.first() {
            let old = *old;
            self.false_premise(format!("node {best} was promoted while node {old} was up"));
        }
        self.considered = considered;
        self.say(|| format!("operator: node {best} is promoted by force"));
        self.cancel_plans();
        self.promote(best, true);
    }

    /// An old primary is to start as a replica: mostly in its process, sometimes on a machine that loses its power.
    fn demote(&mut self, j: usize) {
        match self.now.is_multiple_of(4) {
            true => self.crash(j),
            false => self.start_again(j),
        }
    }

    /// A replica that was asked to take over is told to forget that.
    fn cancel_plans(&mut self) {
        for j in 0..NODES {
            self.on_node(j, |w, up| {
                if let Running::Follower(f) = up {
                    w.replica(j, f, Happens::Cancel);
                }
            });
        }
    }

    /// Of the followers that are up, the one whose history is newest and longest; and of how many.
    pub fn best_candidate(&self, any: bool) -> Option<(usize, usize)> {
        // As in Raft, by the term of its last position and then by that.
        let place = |j: usize| {
            let f = self.machines[j].follower()?;
            let last = f.received().or(f.held)?;
            Some((term_at(&f.dir()?.terms(), last), last))
        };
        let mut all: Vec<(u64, Position, usize)> = (0..NODES)
            .filter_map(|j| place(j).map(|(t, p)| (t, p, j)))
            .collect();
        all.sort_unstable();
        let (.., best) = *all.last()?;
        (any || all.len() > 1).then_some((best, all.len()))
    }

    /// A replica becomes the primary of a new term.
    pub fn promote(&mut self, i: usize, forced: bool) {
        let up = self.machines[i].up.take();
        let Some(Running::Follower(mut f)) = up else {
            self.machines[i].up = up;
            return;
        };
        if forced {
            // It may wait for a copy that is not sent any more: the operator starts it again.
            self.take_up(i, &mut f);
            self.replica(i, &mut f, Happens::TakeOver { force: true });
        }
        let Some(node) = f.node.clone().filter(|_| f.promotes) else {
            self.machines[i].up = Some(Running::Follower(f));
            return;
        };
        let floor = node.recovered_end();
        let promoted = node.promote();
        let promoted = promoted.unwrap_or_else(|e| panic!("node {i} is not promoted: {e}"));
        self.replica(i, &mut f, Happens::Promoted(Ok(promoted)));
        drop(f);
        let node::Promoted { term, start } = promoted;
        self.began.insert(term, start);
        self.say(|| format!("node {i} is the primary of term {term}, which begins after {start} (it came back with {floor})"));
        self.report.promotions += 1;
        self.switched(i, forced, &node.terms(), start);
        let mut p = Primary::new(node);
        self.machines[i].watched.renew(p.terms.clone());
        self.machines[i].follows = None;
        self.newest_leader = Some(i);
        self.settled(i, &mut p);
        self.machines[i].up = Some(Running::Primary(Box::new(p)));
        // The others are told, sooner or later, or by whoever mends things.
        for j in (0..NODES).filter(|j| *j != i) {
            if self.dice.percent(80) {
                let wait = self.dice.below(300_000);
                self.later(wait, What::Redirect(j, i));
            }
        }
    }

    /// A node is told whom to follow. An old primary is started again as a replica.
    pub fn redirect(&mut self, j: usize, to: usize) {
        let up = self.machines[j].up.take();
        match up {
            None => {
                // Whoever starts it may not know yet.
                if !self.config.sloppy || self.dice.percent(70) || self.mending {
                    self.machines[j].follows = Some(to);
                }
            }
            Some(Running::Follower(mut f)) => {
                self.machines[j].follows = Some(to);
                if f.target != to {
                    self.say(|| format!("operator: node {j} follows node {to}"));
                    f.target = to;
                    if let Some(c) = f.connection.take() {
                        self.hang_up(c, true);
                        let ends = match self.now.is_multiple_of(2) {
                            true => Happens::Anew,
                            false => Happens::Lost,
                        };
                        self.replica(j, &mut f, ends);
                    }
                }
                self.machines[j].up = Some(Running::Follower(f));
            }
            Some(Running::Primary(p)) => {
                let newer = self.machines[to].primary().map_or(0, |n| n.term);
                if newer > p.term {
                    self.say(|| format!("operator: node {j} is started again, behind node {to}"));
                    self.machines[j].up = Some(Running::Primary(p));
                    self.machines[j].follows = Some(to);
                    self.demote(j);
                } else {
                    self.machines[j].up = Some(Running::Primary(p));
                }
            }
        }
    }

    /// Everything is mended: whatever is down comes back, one primary is left, everybody follows it. Called again and again
    /// until nothing is left to do.
    pub fn mend(&mut self) {
        if self.machines.iter().any(|m| m.up.is_none()) {
            return;
        }
        let leads = |j: usize| self.machines[j].primary().map(|p| (p.term, p.is_sealing()));
        let newest = (0..NODES).filter_map(|j| leads(j).map(|(t, s)| (t, s, j)));
        let newest = newest.max_by_key(|n| n.0);
        // A primary that was sealed, or has heard of a newer term, leads nobody.
        let leader = newest.filter(|(term, sealing, _)| {
            let known = (0..NODES).filter_map(|j| self.machines[j].follower());
            let known = known.filter_map(|f| f.dir().map(heard));
            !sealing && known.max().unwrap_or(0) <= *term
        });
        match (leader, newest) {
            (Some((.., to)), _) => {
                for j in (0..NODES).filter(|j| *j != to) {
                    self.redirect(j, to);
                }
            }
            (None, Some((.., old))) => {
                self.say(|| {
                    format!("operator: node {old} leads nobody and is started as a replica")
                });
                let target = (0..NODES).find(|j| *j != old).expect("there are others");
                self.machines[old].follows = Some(target);
                self.demote(old);
            }
            (None, None) => {
                if let Some((best, considered)) = self.best_candidate(true)
                    && considered + self.empty_nodes() == NODES
                {
                    self.considered = considered;
                    self.say(|| {
                        format!("operator: nobody leads; node {best} is promoted by force")
                    });
                    self.promote(best, true);
                }
            }
        }
    }

    /// Followers that hold nothing.
    fn empty_nodes(&self) -> usize {
        let empty = |j: &usize| {
            let f = self.machines[*j].follower();
            f.is_some_and(|f| f.node.is_none() && f.held.is_none())
        };
        (0..NODES).filter(empty).count()
    }

    /// Terms of the history on a node's disk.
    pub fn terms_of(&self, i: usize) -> Option<Terms> {
        match self.machines[i].up.as_ref()? {
            Running::Primary(p) => Some(p.terms.clone()),
            Running::Follower(f) => f.dir().map(|d| d.terms()),
        }
    }
}
