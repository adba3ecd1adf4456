//! What primary and replica say to each other about the memory in which the log goes, where they share a host (`remote_ring`).
//!
//! ```text
//! replica ── Offer: a ring, under this name ──▶ primary        once, when the stream flows
//! replica ◀── Answer: taken, or not ──────────  primary
//! replica ◀── Bell: frames up to this word ───  primary        then it takes them, before any message that comes after the bell
//!
//! kind u8 | version u8 | Answer 7: name u64, taken u8 | Bell 8: end u64 | Offer 21: name u64        little-endian
//! ```
//! They travel among the messages of `message`, on the same connection. So one order holds for both media: what is in the ring up to a bell
//! comes before what was sent behind the bell.
//!
//! Left out on purpose: a bell in memory (a futex that the replica sleeps on). The replica's task waits for many things, and its socket is one.

use super::message::{Malformed, Message, VERSION};

/// About the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    Offer { name: u64 },
    Answer { name: u64, taken: bool },
    Bell { end: u64 },
}

/// What comes over a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Message(Message),
    Medium(Medium),
}

const ANSWER: u8 = 7;
const BELL: u8 = 8;
const OFFER: u8 = 21;

impl Medium {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, number) = match *self {
            Medium::Offer { name } => (OFFER, name),
            Medium::Answer { name, .. } => (ANSWER, name),
            Medium::Bell { end } => (BELL, end),
        };
        out.extend_from_slice(&[kind, VERSION]);
        out.extend_from_slice(&number.to_le_bytes());
        if let Medium::Answer { taken, .. } = *self {
            out.push(u8::from(taken));
        }
    }
}

impl Heard {
    /// Reads one whole message of either kind.
    pub fn decode(bytes: &[u8]) -> Result<Heard, Malformed> {
        let &[kind @ (ANSWER | BELL | OFFER), version, ref rest @ ..] = bytes else {
            return Message::decode(bytes).map(Heard::Message);
        };
        if version != VERSION {
            return Err("the message is in a version that this program does not know");
        }
        let number = rest.split_first_chunk::<8>();
        let (number, rest) = number.ok_or("the message is cut short")?;
        let number = u64::from_le_bytes(*number);
        let medium = match (kind, rest) {
            (OFFER, []) => Medium::Offer { name: number },
            (BELL, []) => Medium::Bell { end: number },
            (ANSWER, [taken @ 0..=1]) => Medium::Answer {
                name: number,
                taken: *taken == 1,
            },
            _ => return Err("a word about the ring has another length"),
        };
        Ok(Heard::Medium(medium))
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn words_about_the_ring_round_trip_and_rubbish_is_refused() {
        let answer = |taken| Medium::Answer { name: 9, taken };
        let all = [
            Medium::Offer { name: u64::MAX },
            answer(true),
            answer(false),
            Medium::Bell { end: 7 },
        ];
        for m in all {
            let mut bytes = Vec::new();
            m.encode(&mut bytes);
            assert_eq!(Heard::decode(&bytes), Ok(Heard::Medium(m)));
            for n in 0..bytes.len() {
                assert!(Heard::decode(&bytes[..n]).is_err());
            }
            let longer = [&bytes[..], &[0]].concat();
            assert!(Heard::decode(&longer).is_err());
            bytes[1] += 1;
            assert!(Heard::decode(&bytes).is_err());
        }
        let seal = Message::Seal;
        assert_eq!(Heard::decode(&seal.to_bytes()), Ok(Heard::Message(seal)));
    }
}
