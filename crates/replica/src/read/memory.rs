//! Memory of another node, read and written by words.
//!
//! Shaped after one-sided RDMA (SCC §4.2, "Considerations for one-sided RDMA", and §4.3): a reader names words, computed from what it looks
//! for, and gets their values; a writer names a word, and what is to stand from there on. The other side has no code that knows what they
//! mean. Two things are promised, which a network card's queue promises, too:
//! - One request is one read of its words **in order**: the value of a later word was there after that of an earlier one.
//! - Writes are seen **in order**: who sees a word of one write sees all of the writes before it.
//!
//! | | read | written |
//! |---|---|---|
//! | a primary's region, over TCP (`canon`) | a task at the primary loads the words and answers | no: its owner gives that away to nobody |
//! | memory that both map ([`SharedMemory`]) | loads | stores; the log's ring is written so (`ship::remote_ring`) |
//! | RDMA | one chained read per word, nobody at the other end | one write per run of words |
//!
//! ```text
//! request  | number u64 | words: u32 each  |
//! answer   | number u64 | values: u64 each |       little-endian; a message each
//! place    | name u64   | path |                   the primary's first: a file that has the same words, for who is on its host
//! ```
//!
//! Left out on purpose: RDMA itself (no such hardware was at hand), and writing over TCP: a message whose bytes somebody at the other end
//! stores is the message that the log is sent in anyway, and one copy more.

use env::sync::atomic::{AtomicU64, Ordering, fence};
use std::future::Future;
use std::io;
use std::pin::Pin;

/// Values of words, when they come.
pub type Reading = Pin<Box<dyn Future<Output = io::Result<Vec<u64>>> + Send>>;

/// See the head of the file.
pub trait RemoteMemory: Send + Sync {
    /// The values of these words, read in this order. An error: nothing can be read, now or any more.
    fn read(&self, words: Vec<u32>) -> Reading;
}

/// Memory that its owner has also given away for writing, as one registers it for remote writes.
pub trait WritableMemory: RemoteMemory {
    /// Puts these bytes from this word on; what they leave of the last word becomes 0. All of it lies in the memory.
    fn write(&self, word: usize, bytes: &[u8]);
}

/// Words that may be in several processes at once.
pub trait SharedWords: Send + Sync {
    fn words(&self) -> &[AtomicU64];
}

#[cfg(not(feature = "shuttle"))]
impl SharedWords for store::MappedWords {
    fn words(&self) -> &[AtomicU64] {
        base::region::Words::words(self)
    }
}

impl SharedWords for std::sync::Arc<[AtomicU64]> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// Another node's memory that this one maps.
pub struct SharedMemory<W>(pub W);

impl<W: SharedWords> RemoteMemory for SharedMemory<W> {
    fn read(&self, words: Vec<u32>) -> Reading {
        let all = self.0.words();
        let value = |w: u32| Some(all.get(w as usize)?.load(Ordering::Acquire));
        let values: Option<Vec<u64>> = words.into_iter().map(value).collect();
        let none = || io::Error::from(io::ErrorKind::InvalidInput);
        Box::pin(std::future::ready(values.ok_or_else(none)))
    }
}

impl<W: SharedWords> WritableMemory for SharedMemory<W> {
    fn write(&self, word: usize, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<8>();
        let count = whole.len() + usize::from(!rest.is_empty());
        let to = &self.0.words()[word..word + count];
        // Who sees a store after the fence, and has one of its own behind its load, sees those before it.
        fence(Ordering::Release);
        for (to, from) in to.iter().zip(whole) {
            to.store(u64::from_le_bytes(*from), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            to[count - 1].store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
    }
}

/// Most words of one request.
pub const MOST_WORDS: usize = 4096;

/// A request: its number, and the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub number: u64,
    pub words: Vec<u32>,
}

/// An answer: the request's number, and the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub number: u64,
    pub values: Vec<u64>,
}

/// Appends the bytes of a request.
pub fn encode_request(number: u64, words: &[u32], out: &mut Vec<u8>) {
    assert!(words.len() <= MOST_WORDS, "{} words at once", words.len());
    out.extend_from_slice(&number.to_le_bytes());
    words
        .iter()
        .for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
}

/// Appends the bytes of an answer.
pub fn encode_answer(number: u64, values: &[u64], out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
    values
        .iter()
        .for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
}

/// Appends the bytes of a place: where else the words are, and their name; no path: nowhere.
pub fn encode_place(name: u64, path: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&name.to_le_bytes());
    out.extend_from_slice(path.as_bytes());
}

/// Reads a place.
pub fn decode_place(bytes: &[u8]) -> Result<(u64, String), &'static str> {
    let (name, path) = bytes.split_first_chunk().ok_or("a place without a name")?;
    let path = std::str::from_utf8(path).map_err(|_| "a path that is no text")?;
    Ok((u64::from_le_bytes(*name), path.to_owned()))
}

/// Reads a request.
pub fn decode_request(bytes: &[u8]) -> Result<Request, &'static str> {
    let (number, rest) = bytes
        .split_first_chunk()
        .ok_or("a request without a number")?;
    let (words, left) = rest.as_chunks::<4>();
    if !left.is_empty() || words.len() > MOST_WORDS {
        return Err("a request of an impossible length");
    }
    Ok(Request {
        number: u64::from_le_bytes(*number),
        words: words.iter().map(|w| u32::from_le_bytes(*w)).collect(),
    })
}

/// Reads an answer.
pub fn decode_answer(bytes: &[u8]) -> Result<Answer, &'static str> {
    let (number, rest) = bytes
        .split_first_chunk()
        .ok_or("an answer without a number")?;
    let (values, left) = rest.as_chunks::<8>();
    if !left.is_empty() || values.len() > MOST_WORDS {
        return Err("an answer of an impossible length");
    }
    Ok(Answer {
        number: u64::from_le_bytes(*number),
        values: values.iter().map(|v| u64::from_le_bytes(*v)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_rubbish_is_refused() {
        let mut bytes = Vec::new();
        encode_request(7, &[3, 8, 70_000], &mut bytes);
        let r = decode_request(&bytes).unwrap();
        assert_eq!((r.number, &r.words[..]), (7, &[3, 8, 70_000][..]));
        assert!(decode_request(&bytes[..bytes.len() - 1]).is_err());
        let mut bytes = Vec::new();
        encode_answer(7, &[u64::MAX, 0], &mut bytes);
        let a = decode_answer(&bytes).unwrap();
        assert_eq!((a.number, &a.values[..]), (7, &[u64::MAX, 0][..]));
        assert!(decode_answer(&bytes[..9]).is_err());
        assert!(decode_answer(&[]).is_err() && decode_request(&[1]).is_err());
        assert!(decode_request(&vec![0; 8 + 4 * MOST_WORDS + 4]).is_err());
        let mut bytes = Vec::new();
        encode_place(9, "/x/y", &mut bytes);
        assert_eq!(decode_place(&bytes), Ok((9, "/x/y".into())));
        assert!(decode_place(&[0; 7]).is_err() && decode_place(&[255; 9]).is_err());
    }
}
