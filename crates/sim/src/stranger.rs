//! What is not a node of the cluster: a program that may log in for replication, has another secret, and lies.
//!
//! It follows a primary and acknowledges everything as shown and on its disk. Over a second connection it says that there is a
//! primary of a newer term. Nodes and strangers alike prove themselves by `replica::proof`, as over sockets.
//!
//! Left out on purpose: strangers that read the log without a word; they change nothing.

use crate::primary::Primary;
use crate::world::World;
use replica::proof::{Answerer, Asker, BYTES, Claim, Purpose, Secret};
use replica::ship::{Message, Peer, VERSION};

impl World {
    /// The two ends of a new connection prove to each other what they are.
    pub fn prove(&self, i: usize, c: usize, p: &Primary) -> Peer {
        let secret = |stranger: bool| Secret::new([u8::from(stranger); BYTES]);
        let claim = |node: usize, term| Claim {
            node: format!("node{node}"),
            cluster: p.node.cluster(),
            term,
        };
        let nonce = |end: u8| [end ^ c as u8; BYTES];
        let theirs = claim(self.net.connections[c].replica, 0);
        let known = secret(self.strangers.contains(&c));
        let mut asker = Asker::new(known, Purpose::Replica, &theirs, &nonce(1));
        let first = asker.introduction();
        let own = claim(i, p.term);
        let purpose = Purpose::Replica;
        let (answerer, second) = Answerer::asked(secret(false), purpose, &own, &nonce(2), first)
            .unwrap_or_else(|e| panic!("an introduction is refused: {e}"));
        let proof = asker.challenged(&second);
        let proof = proof.unwrap_or_else(|e| panic!("a challenge is refused: {e}"));
        match answerer.proven(&proof) {
            Ok((_, answer)) => {
                assert_eq!(
                    asker.answered(&answer),
                    Ok(own),
                    "the primary proves it, too"
                );
                Peer::Member
            }
            Err(_) => Peer::Stranger,
        }
    }

    /// A stranger comes to a primary, by two connections.
    pub fn stranger(&mut self, primary: usize) {
        let p = self.machines[primary].primary().expect("it leads");
        let (cluster, terms, last) = (p.node.cluster(), p.terms.clone(), p.flushed());
        let mut newer = terms.clone();
        newer.push((p.term + 1, last));
        for terms in [terms, newer] {
            let c = self.net.open(primary, primary);
            self.strangers.insert(c);
            let hello = Message::Hello {
                version: u16::from(VERSION),
                cluster,
                node: "stranger".into(),
                terms,
                last,
                ring: 1 << 20,
            };
            self.send(c, true, hello.to_bytes());
        }
    }

    /// It has everything, and shows it.
    pub fn stranger_hears(&mut self, c: usize, message: &Message) {
        if let Some(step) = message.step() {
            let at = step.upto;
            let ack = Message::Ack {
                term: step.term,
                received: at,
                persisted: at,
                applied: at,
                visible: at,
                echo_micros: step.sent_micros,
            };
            self.send(c, true, ack.to_bytes());
        }
    }
}
