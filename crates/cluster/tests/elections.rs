//! Three voters that decide when to stand, over links with delays, in steps of ten milliseconds. Each may be stopped for a while.
//!
//! | what happens | what has to come of it |
//! |---|---|
//! | any of them is stopped for up to 500 ms, again and again, the leader too | none stands |
//! | one that follows is stopped for seconds, or all are stopped together | none stands |
//! | the leader is gone | one stands within 1.5 s, seldom two at the same time |
//!
//! Left out on purpose: votes, which are openraft's.

use cluster::elections::{Elections, Step, Timing, goes_before};
use env::{Random, SeededRandom};

const MS: u64 = 1_000_000;
const STEP: u64 = 10;
const LEADER: usize = 0;

#[derive(Clone, Copy)]
enum Message {
    Beat,
    Ask { from: usize, asked: u64 },
    Answer { yes: bool, asked: u64 },
}

struct Voter {
    elections: Elections,
    stopped: u64,
    /// When the others were asked, and how many would vote for this one.
    asked: Option<(u64, usize)>,
    inbox: Vec<(u64, Message)>,
}

struct World {
    dice: SeededRandom,
    now: u64,
    voters: Vec<Voter>,
    leads: bool,
    /// The voters that stood, and when.
    stood: Vec<(usize, u64)>,
}

impl World {
    fn new(seed: u64) -> World {
        let dice = SeededRandom::new(seed);
        let timing = Timing::default();
        let voters = (0..3).map(|_| Voter {
            elections: Elections::new(timing, 0, dice.next_u64()),
            stopped: 0,
            asked: None,
            inbox: vec![],
        });
        World {
            voters: voters.collect(),
            dice,
            now: 0,
            leads: true,
            stood: vec![],
        }
    }

    fn below(&self, n: u64) -> u64 {
        self.dice.next_u64() % n
    }

    fn send(&mut self, to: usize, message: Message) {
        let at = self.now + self.below(80);
        self.voters[to].inbox.push((at, message));
    }

    fn hear(&mut self, i: usize, message: Message) {
        let (now, draw) = (self.now * MS, self.dice.next_u64());
        let voter = &mut self.voters[i];
        match message {
            Message::Beat => voter.elections.heard(now, draw),
            Message::Ask { from, asked } => {
                let first = goes_before((0, from as u64), (0, i as u64));
                let leads = i == LEADER;
                let yes = !leads && voter.elections.another(now, first, draw);
                self.send(from, Message::Answer { yes, asked });
            }
            Message::Answer { yes, asked } => {
                if let Some((at, votes)) = &mut voter.asked
                    && *at == asked
                {
                    *votes += usize::from(yes);
                }
            }
        }
    }

    fn act(&mut self, i: usize) {
        let (now, draw) = (self.now * MS, self.dice.next_u64());
        if i == LEADER {
            self.voters[i].elections.heard(now, draw);
            if self.now.is_multiple_of(120) {
                for to in [1, 2] {
                    self.send(to, Message::Beat);
                }
            }
            return;
        }
        let voter = &mut self.voters[i];
        if let Some((asked, votes)) = voter.asked {
            let stands = votes > 0;
            if stands || self.now - asked >= 250 {
                voter.asked = None;
                voter.elections.asked(now, stands, draw);
                self.stood.extend(stands.then_some((i, self.now)));
            }
            return;
        }
        if self.now.is_multiple_of(50) && voter.elections.tick(now, false) == Step::Ask {
            let asked = self.now;
            voter.asked = Some((asked, 0));
            for to in (0..3).filter(|to| *to != i) {
                self.send(to, Message::Ask { from: i, asked });
            }
        }
    }

    /// Goes on for so many milliseconds.
    fn run(&mut self, ms: u64, mut each: impl FnMut(&mut World)) {
        let until = self.now + ms;
        while self.now < until {
            self.now += STEP;
            each(self);
            for i in 0..3 {
                if self.voters[i].stopped > self.now || (i == LEADER && !self.leads) {
                    continue;
                }
                let now = self.now;
                let inbox = std::mem::take(&mut self.voters[i].inbox);
                let (come, later) = inbox.into_iter().partition(|m: &(u64, _)| m.0 <= now);
                self.voters[i].inbox = later;
                let mut come: Vec<(u64, Message)> = come;
                come.sort_by_key(|m| m.0);
                // One that was stopped may look at its timers before it reads.
                if self.below(2) == 0 {
                    self.act(i);
                    come.into_iter().for_each(|m| self.hear(i, m.1));
                } else {
                    come.into_iter().for_each(|m| self.hear(i, m.1));
                    self.act(i);
                }
            }
        }
    }
}

#[test]
fn pauses_of_half_a_second_bring_no_election_about() {
    for seed in 0..200 {
        let mut world = World::new(seed);
        world.run(60_000, |w| {
            if w.below(40) == 0 {
                let i = w.below(3) as usize;
                // Not stopped again at once.
                if w.voters[i].stopped + 700 < w.now {
                    w.voters[i].stopped = w.now + w.below(500);
                }
            }
        });
        assert_eq!(world.stood, [], "seed {seed}");
    }
}

#[test]
fn one_that_was_stopped_for_long_disturbs_nothing_and_neither_does_a_suspended_machine() {
    for seed in 0..200 {
        let mut world = World::new(seed);
        world.run(30_000, |w| {
            if w.now.is_multiple_of(10_000) {
                let i = 1 + w.below(2) as usize;
                w.voters[i].stopped = w.now + 1000 + w.below(6000);
            }
        });
        for voter in &mut world.voters {
            voter.stopped = world.now + 5000;
        }
        world.run(10_000, |_| {});
        assert_eq!(world.stood, [], "seed {seed}");
    }
}

#[test]
fn a_leader_that_is_gone_is_followed_soon() {
    let mut together = 0;
    for seed in 0..500 {
        let mut world = World::new(seed);
        let lead = 3000 + world.below(1000);
        world.run(lead, |_| {});
        world.leads = false;
        let gone = world.now;
        world.run(3000, |_| {});
        let first = world.stood.first().expect("one stands");
        assert!(
            first.1 - gone < 1500,
            "seed {seed}: after {}",
            first.1 - gone
        );
        let near = |s: &&(usize, u64)| s.0 != first.0 && s.1 - first.1 < 100;
        together += usize::from(world.stood.iter().any(|s| near(&s)));
    }
    assert!(
        together < 50,
        "two stood at the same time {together} times of 500"
    );
}
