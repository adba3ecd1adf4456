//! The file of a log ring: memory of a replica into which a primary on its host writes the log (`replica::ship::remote_ring`).
//!
//! ```text
//! replica   makes /dev/shm/canon-ring-NAME and maps it ── Offer NAME ──▶ primary   finds NAME there, maps it
//!           takes the file's name away ◀── Answer ──────────────────────           writes batches, rings
//! ```
//! Who is on another host, or another user, finds no such file, and sends messages. After the answer the file has no name, so nobody else
//! can map it, and nothing stays of two processes that are killed. The mapping goes with the connection ([`Offered`] is dropped): what an
//! old primary writes then is read by nobody, and freed when it goes, too.
//!
//! Left out on purpose: a ring for what is sent while a replica is filled, since a checkpoint is a file.

use super::copy_both::broken;
use super::shared::{Made, open, remove_left, ring_path};
use base::Result;
use base::region::Words;
use replica::read::SharedMemory;
use replica::ship::{Medium, Message, NAME_WORD, RING_WORDS, RemoteRing, Ringside};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use store::MappedWords;

/// The primary's side: the ring of one replica, for one connection.
pub struct LogRing {
    pub name: u64,
    pub ring: RemoteRing<SharedMemory<MappedWords>>,
}

/// Maps the ring of this name, if it was made on this host, by this user.
pub fn find(name: u64) -> Option<LogRing> {
    let file = open(&ring_path(name)).ok()?;
    // Another user could make it shorter under our feet.
    let ours = std::fs::metadata("/proc/self").ok()?.uid();
    if file.metadata().ok()?.uid() != ours {
        return None;
    }
    let words = MappedWords::of(&file, RING_WORDS).ok()?;
    let found = words.words()[NAME_WORD].load(Ordering::SeqCst);
    let ring = RemoteRing::new(SharedMemory(words), RING_WORDS);
    (found == name).then_some(LogRing { name, ring })
}

/// The replica's side. Until it is dropped the primary may write; then nobody reads.
pub struct Offered {
    name: u64,
    /// Until the primary has answered.
    file: Option<Made>,
    ring: Ringside<MappedWords>,
    taken: bool,
    frame: Vec<u8>,
}

impl Offered {
    /// Makes a ring. `random`: a name for it.
    pub fn new(random: u64) -> io::Result<Offered> {
        remove_left();
        let file = Made::new(ring_path(random), RING_WORDS * 8)?;
        let words = MappedWords::of(&file.file, RING_WORDS)?;
        words.words()[NAME_WORD].store(random, Ordering::SeqCst);
        Ok(Offered {
            name: random,
            file: Some(file),
            ring: Ringside::new(words),
            taken: false,
            frame: Vec::new(),
        })
    }

    pub fn offer(&self) -> Medium {
        Medium::Offer { name: self.name }
    }

    /// The primary has said something about the ring. Whether it is used.
    pub fn heard(&mut self, word: Medium) -> Result<bool> {
        match word {
            Medium::Answer { name, taken } if name == self.name && self.file.is_some() => {
                self.file = None;
                self.taken = taken;
            }
            Medium::Bell { end } if self.taken => self.ring.told(end).map_err(broken)?,
            other => return Err(broken(&format!("{other:?} out of turn"))),
        }
        Ok(self.taken)
    }

    /// The next batch in the ring that a bell has told of.
    pub fn next(&mut self) -> Result<Option<Message>> {
        if !self.ring.next(&mut self.frame).map_err(broken)? {
            return Ok(None);
        }
        let message = Message::decode(&self.frame).map_err(broken)?;
        match message {
            Message::Batch { .. } => Ok(Some(message)),
            other => Err(broken(&format!("{other:?} in the ring"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Position;
    use replica::ship::Step;
    use std::path::Path;

    fn batch(n: u64) -> (Vec<u8>, Vec<u8>) {
        let step = Step {
            term: 1,
            stream: 7,
            after: Position::from_u64(n),
            upto: Position::from_u64(n + 1),
            published: Position::ZERO,
            sent_micros: 0,
        };
        let mut head = Vec::new();
        step.encode_batch(&[], &mut head);
        (head, n.to_le_bytes().repeat(100))
    }

    fn name(n: u64) -> u64 {
        u64::from(std::process::id()) << 32 | 0x1000 | n
    }

    /// Both sides; none where nothing is shared, which a server says.
    fn pair(n: u64) -> Option<(LogRing, Offered)> {
        if !Path::new("/dev/shm").is_dir() {
            assert!(Offered::new(name(n)).is_err());
            return None;
        }
        let mut offered = Offered::new(name(n)).expect("made");
        let found = find(name(n)).expect("found");
        let (name, taken) = (name(n), true);
        assert!(
            offered
                .heard(Medium::Answer { name, taken })
                .expect("an answer")
        );
        Some((found, offered))
    }

    #[test]
    fn what_a_primary_writes_is_taken_and_the_file_has_no_name() {
        let Some((mut primary, mut replica)) = pair(1) else {
            return;
        };
        assert!(!ring_path(name(1)).exists());
        assert!(find(name(1)).is_none(), "nobody else maps it");
        for n in 0..20_000 {
            let (head, body) = batch(n);
            let end = primary.ring.put(&head, &body).expect("there is room");
            replica.heard(Medium::Bell { end }).expect("a bell");
            let m = replica.next().expect("a batch").expect("it was rung");
            assert_eq!(m.to_bytes(), [head, body].concat());
            assert!(replica.next().expect("nothing").is_none());
        }
        // The replica goes, and the primary writes on: into memory that nobody reads, until it is full.
        drop(replica);
        let (head, body) = batch(0);
        let more = (0..10_000).filter(|_| primary.ring.put(&head, &body).is_some());
        assert!((1..10_000).contains(&more.count()));
    }

    #[test]
    fn words_out_of_turn_and_other_messages_are_errors() {
        let Some((mut primary, mut replica)) = pair(2) else {
            return;
        };
        let answer = |taken| Medium::Answer {
            name: name(2),
            taken,
        };
        assert!(replica.heard(answer(true)).is_err(), "a second answer");
        let seal = Message::Seal.to_bytes();
        let end = primary.ring.put(&seal, &[]).expect("room");
        replica.heard(Medium::Bell { end }).expect("a bell");
        assert!(replica.next().is_err(), "no batch");
        assert!(replica.heard(Medium::Bell { end: u64::MAX }).is_err());
        let mut refused = Offered::new(name(3)).expect("made");
        assert!(refused.heard(Medium::Bell { end: 0 }).is_err());
        let other = Medium::Answer {
            name: name(4),
            taken: true,
        };
        assert!(refused.heard(other).is_err());
        let no = Medium::Answer {
            name: name(3),
            taken: false,
        };
        assert!(!refused.heard(no).expect("an answer"));
        assert!(refused.heard(Medium::Bell { end: 0 }).is_err(), "not taken");
        assert!(find(name(5)).is_none(), "never made");
    }
}
