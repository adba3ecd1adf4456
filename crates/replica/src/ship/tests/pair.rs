//! A sender and a receiver, a real ring and a slow consumer, over a network that loses, doubles, reorders and breaks. Whatever
//! happens, the consumer takes every group once and in order; when the network heals, it gets them all.

use super::super::message::Message;
use super::super::receiver::{self, Identity, Receiver};
use super::super::ring::{Read, Ring, RingReader, RingWriter};
use super::super::sender::{self, Sender};
use super::*;

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

struct World {
    dice: Dice,
    all: Vec<Arc<Group>>,
    /// Groups that are durable at the primary.
    durable: u32,
    sender: Option<Sender>,
    receiver: Receiver,
    ring: (RingWriter, RingReader),
    /// Bytes on their way, either direction.
    to_primary: Vec<Vec<u8>>,
    to_replica: Vec<Vec<u8>>,
    reads: Vec<Position>,
    connected: bool,
    taken: Position,
    seen: u32,
    overruns: u32,
    broken: bool,
}

impl World {
    fn new(seed: u64, all: Vec<Arc<Group>>) -> World {
        let identity = Identity {
            cluster: CLUSTER,
            node: "r".into(),
            terms: facts().terms,
            heard: 0,
            last: upto(0),
            ring: 2048,
        };
        World {
            dice: Dice(seed * 2 + 0x9e37_79b9),
            all,
            durable: 3,
            sender: None,
            receiver: Receiver::new(identity),
            ring: Ring::pair(2048),
            to_primary: vec![],
            to_replica: vec![],
            reads: vec![],
            connected: false,
            taken: upto(0),
            seen: 1,
            overruns: 0,
            broken: true,
        }
    }

    fn sender(&mut self, event: sender::Event) {
        let mut out = Vec::new();
        if let Some(s) = &mut self.sender {
            s.handle(event, 1, &mut out);
        }
        self.send(out);
    }

    fn send(&mut self, out: Vec<sender::Command>) {
        for command in out {
            match command {
                sender::Command::Send(m) => self.to_replica.push(m.to_bytes()),
                sender::Command::SendBatch { step, group } => {
                    let mut bytes = Vec::new();
                    step.encode_batch(group.as_bytes(), &mut bytes);
                    self.to_replica.push(bytes);
                }
                sender::Command::ReadLog { from, .. } => self.reads.push(from),
                sender::Command::Close(why) => {
                    assert!(self.broken, "{why}");
                    self.disconnect();
                }
                sender::Command::Report { .. } | sender::Command::Joined => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn receiver(&mut self, event: receiver::Event) {
        let mut out = Vec::new();
        self.receiver.handle(event, &mut out);
        for command in out {
            match command {
                receiver::Command::Send(m) => self.to_primary.push(m.to_bytes()),
                receiver::Command::Write {
                    message, restart, ..
                } => {
                    if restart {
                        self.ring.0.restart();
                    }
                    self.ring.0.write(&message.to_bytes());
                }
                receiver::Command::Close(_) => {
                    self.connected = false;
                    self.sender = None;
                    self.to_primary.clear();
                    self.to_replica.clear();
                }
                receiver::Command::Published(_) | receiver::Command::Reconnect { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn disconnect(&mut self) {
        self.connected = false;
        self.sender = None;
        self.to_primary.clear();
        self.to_replica.clear();
        self.receiver(receiver::Event::Disconnected);
    }

    /// Takes one message off a queue, as good or bad as the network is.
    fn carry(&mut self, to_primary: bool) {
        let (bad, pick) = (self.broken, self.dice.below(100));
        let queue = if to_primary {
            &mut self.to_primary
        } else {
            &mut self.to_replica
        };
        if queue.is_empty() {
            return;
        }
        let at = match bad && pick < 20 {
            true => self.dice.below(queue.len() as u64) as usize,
            false => 0,
        };
        let bytes = match bad && pick > 90 {
            true => queue[at].clone(),
            false => queue.remove(at),
        };
        if bad && (80..85).contains(&pick) {
            return;
        }
        let message = Message::decode(&bytes).unwrap();
        if !to_primary {
            return self.receiver(receiver::Event::Message(message));
        }
        if matches!(message, Message::Hello { .. }) {
            let (mut s, mut out) = (Sender::new(Peer::Member), Vec::new());
            let now = Facts {
                last: upto(self.durable - 1),
                ..facts()
            };
            s.greet(message, now, &mut out);
            s.handle(sender::Event::Time, 1, &mut out);
            self.sender = Some(s);
            return self.send(out);
        }
        self.sender(sender::Event::Message(message));
    }

    fn read_log(&mut self) {
        if self.reads.is_empty() {
            return;
        }
        let from = self.reads.remove(0);
        let first = (0..self.durable).find(|g| upto(*g) > from);
        let most = first.map_or(0, |f| (f + 4).min(self.durable));
        let groups = match first {
            Some(f) => self.all[f as usize..most as usize].to_vec(),
            None => vec![],
        };
        let end = first.map_or(from, |_| upto(most - 1));
        self.sender(sender::Event::LogRead {
            from,
            groups,
            upto: end,
        });
    }

    fn append(&mut self) {
        let g = self.durable;
        if g as usize == self.all.len() {
            return;
        }
        self.durable += 1;
        // Some are not told of: the sender must notice.
        if self.dice.below(10) > 0 {
            self.sender(sender::Event::Shipped {
                after: upto(g - 1),
                upto: upto(g),
                group: Some(self.all[g as usize].clone()),
            });
        }
    }

    fn consume(&mut self) {
        let mut frame = Vec::new();
        match self.ring.1.read(&mut frame) {
            Read::Empty => {}
            Read::Overrun => {
                self.overruns += 1;
                self.receiver(receiver::Event::Overrun { from: self.taken });
            }
            Read::Frame => {
                let message = Message::decode(&frame).unwrap();
                let step = message.step().unwrap();
                assert!(step.after <= self.taken, "a hole before {}", step.after);
                assert!(step.upto > self.taken, "a double");
                if let Message::Batch { group, .. } = message {
                    let group = Group::from_bytes(group).unwrap();
                    assert_eq!(&group, &*self.all[self.seen as usize], "in order");
                    self.seen += 1;
                }
                self.taken = step.upto;
                self.receiver(receiver::Event::Moved(all_at(self.taken)));
            }
        }
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..=2 if self.broken && self.connected => self.disconnect(),
            0..=9 if !self.connected => {
                self.connected = true;
                self.receiver(receiver::Event::Connected);
            }
            10..=19 => self.append(),
            20..=24 => {
                self.sender(sender::Event::Time);
                self.receiver(receiver::Event::Time);
            }
            25..=34 => self.read_log(),
            35..=60 => self.carry(true),
            61..=90 => self.carry(false),
            // The consumer is slow while things are broken.
            91..=92 => self.consume(),
            93..=99 if !self.broken => self.consume(),
            _ => {}
        }
    }
}

#[test]
fn every_group_arrives_once_and_in_order() {
    let all = groups(120);
    let (mut overruns, mut seeds_done) = (0, 0);
    for seed in 1..=30 {
        let mut world = World::new(seed, all.clone());
        for _ in 0..2_000 {
            world.step();
        }
        world.broken = false;
        for _ in 0..100_000 {
            world.step();
            if world.seen == all.len() as u32 {
                break;
            }
        }
        assert_eq!(world.seen as usize, all.len(), "seed {seed} does not heal");
        overruns += world.overruns;
        seeds_done += 1;
    }
    assert!(
        overruns > 10,
        "the ring was overrun {overruns} times in {seeds_done}"
    );
}
