//! What members say to each other, as bytes: messages of the consensus, and words about leases, terms and proposals.
//!
//! ```text
//! message    'C' and a message of the consensus (crate::consensus::Message)    or 'W' and a Word as JSON
//! answer     JSON, of the type that the word names
//! ```
//! No term above [`MAX_TERM`] is taken, neither in a word nor in an answer. Terms are counted up from what was heard, so a greater one would wrap at its successor.
//!
//! Left out on purpose: the connection ([`crate::Carry`] has it).

use base::MAX_TERM;
use serde::{Deserialize, Serialize};
use std::io;

use crate::catalogue::Command;
use crate::leases::Request;
use crate::standing::Answer;

const CONSENSUS: u8 = b'C';
const WORD: u8 = b'W';

/// A word to a member. It is the consensus leader, where nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// Answered with whether it is granted. Builds before want to know where the log ends.
    Lease { request: Request, end: u64 },
    /// Answered with what the catalogue said to it, or nothing.
    Propose(Command),
    /// Answered with whether a majority has confirmed it now.
    Confirm,
    /// To a copy: answered with its [`Answer`].
    Promise { term: u64 },
    /// Answered with the members that it reaches.
    Reach,
}

/// What came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// For [`crate::Consensus::hear`].
    Consensus(&'a [u8]),
    Word(Word),
}

impl Said<'_> {
    /// Reads it. An error: a build after this one says it, or a term is above [`MAX_TERM`].
    pub fn decode(bytes: &[u8]) -> io::Result<Said<'_>> {
        match bytes.split_first() {
            Some((&CONSENSUS, message)) => Ok(Said::Consensus(message)),
            Some((&WORD, word)) => {
                let word: Word = serde_json::from_slice(word)?;
                checked(word.terms())?;
                Ok(Said::Word(word))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The bytes that are sent.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Said::Consensus(message) => [&[CONSENSUS], *message].concat(),
            Said::Word(word) => {
                let mut bytes = vec![WORD];
                serde_json::to_writer(&mut bytes, word).expect("texts and numbers are written");
                bytes
            }
        }
    }
}

impl Word {
    fn terms(&self) -> Vec<u64> {
        match self {
            Word::Lease { request, .. } => vec![request.term],
            Word::Propose(command) => command.terms(),
            Word::Promise { term } => vec![*term],
            Word::Confirm | Word::Reach => vec![],
        }
    }
}

impl Answer {
    /// Reads the answer to [`Word::Promise`]. An error: a term is above [`MAX_TERM`].
    pub fn decode(bytes: &[u8]) -> io::Result<Answer> {
        let answer: Answer = serde_json::from_slice(bytes)?;
        let term = match answer {
            Answer::Promised(testimony) => testimony.end.term,
            Answer::Later(term) => term,
        };
        checked([term])?;
        Ok(answer)
    }
}

/// An error where a term is above [`MAX_TERM`].
pub(crate) fn checked(terms: impl IntoIterator<Item = u64>) -> io::Result<()> {
    match terms.into_iter().find(|term| *term > MAX_TERM) {
        None => Ok(()),
        Some(term) => {
            let what = format!("there is no term {term}");
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_builds_before_wrote_them() {
        let lease = br#"W{"Lease":{"request":{"holder":1,"term":2,"number":3,"life":4},"end":5}}"#;
        let Ok(Said::Word(Word::Lease { request, end: 5 })) = Said::decode(lease) else {
            panic!("a request for a lease");
        };
        assert_eq!((request.term, request.length), (2, None));
        let promise = Said::Word(Word::Promise { term: MAX_TERM });
        assert_eq!(Said::decode(&promise.encode()).ok(), Some(promise));
        for bad in [
            &b""[..],
            b"W",
            b"W\"Confirmed\"",
            b"X\"Confirm\"",
            b"\"Confirm\"",
        ] {
            assert!(Said::decode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_term_that_nobody_can_have_begun_is_not_taken() {
        for term in [MAX_TERM + 1, u64::MAX] {
            for word in [
                format!(r#"{{"Promise":{{"term":{term}}}}}"#),
                format!(r#"{{"Propose":{{"Took":{{"node":1,"term":{term}}}}}}}"#),
                format!(r#"{{"Propose":{{"Begin":{{"after":1,"above":{term}}}}}}}"#),
                format!(r#"{{"Propose":{{"HandOver":{{"term":{term},"to":1}}}}}}"#),
            ] {
                let said = [b"W", word.as_bytes()].concat();
                assert!(Said::decode(&said).is_err(), "{word}");
            }
            assert!(Answer::decode(format!(r#"{{"Later":{term}}}"#).as_bytes()).is_err());
        }
    }
}
