//! Messages of replication over a connection in CopyBoth mode.
//!
//! ```text
//! | 'd' | length i32, itself included | one replica::ship::Message |      both ways
//! ```
//! Neither direction waits for the other: [`CopyBoth::next`] writes what is to be written while it waits for a message, so two
//! ends that both have much to send do not stop each other. It may be dropped at any of its waits and called again.

use base::{Error, Result, SqlState};
pub use protocol::link::lost;
use protocol::message::server_error;
use protocol::{Line, Link};
use replica::ship::Message;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;

/// Longest message: the largest group of commits and its head.
const MAX_FRAME: usize = (1 << 30) + (64 << 10);
/// Longest message of one that has not proven that it is a node: a Hello with some thousand terms.
const MAX_OF_STRANGERS: usize = 1 << 20;
/// Bytes read at once.
const CHUNK: usize = 64 << 10;
/// A buffer that grew beyond this is let go when it is empty.
const KEEP: usize = 8 << 20;

/// One end.
pub struct CopyBoth<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    input: Vec<u8>,
    taken: usize,
    out: Vec<u8>,
    written: usize,
    /// Longest message that is taken.
    most: usize,
}

impl CopyBoth<Line<TcpStream>> {
    /// Sends the command over a connection that is logged in, which goes over to CopyBoth with it.
    pub async fn begin(link: Link, command: &str) -> Result<CopyBoth<Line<TcpStream>>> {
        let (stream, input) = link.copy_both(command).await?;
        Ok(CopyBoth::new(stream, input))
    }
}

impl<S: AsyncRead + AsyncWrite> CopyBoth<S> {
    /// Over a connection of which these bytes were read already.
    pub fn new(stream: S, input: Vec<u8>) -> CopyBoth<S> {
        let (reader, writer) = tokio::io::split(stream);
        CopyBoth {
            reader,
            writer,
            input,
            taken: 0,
            out: Vec::new(),
            written: 0,
            most: MAX_FRAME,
        }
    }

    /// The other end has not proven that it is a node.
    pub fn of_stranger(mut self) -> CopyBoth<S> {
        self.most = MAX_OF_STRANGERS;
        self
    }

    /// The same connection over what `f` makes of its stream.
    pub fn over<T: AsyncRead + AsyncWrite>(
        self,
        f: impl FnOnce(S) -> io::Result<T>,
    ) -> io::Result<CopyBoth<T>>
    where
        S: Unpin,
    {
        let (reader, writer) = tokio::io::split(f(self.reader.unsplit(self.writer))?);
        Ok(CopyBoth {
            reader,
            writer,
            input: self.input,
            taken: self.taken,
            out: self.out,
            written: self.written,
            most: self.most,
        })
    }

    /// Puts a message among what is to be written.
    pub fn send(&mut self, m: &Message) {
        self.send_with(|out| m.encode(out));
    }

    /// Puts a message whose bytes `f` appends among what is to be written.
    pub fn send_with(&mut self, f: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        self.out.extend_from_slice(&[b'd', 0, 0, 0, 0]);
        f(&mut self.out);
        let len = self.out.len() - start - 1;
        assert!(len <= MAX_FRAME, "a message of {len} bytes");
        self.out[start + 1..start + 5].copy_from_slice(&(len as u32).to_be_bytes());
    }

    /// Bytes that wait to be written.
    pub fn pending(&self) -> usize {
        self.out.len() - self.written
    }

    /// The next message.
    pub async fn next(&mut self) -> Result<Message> {
        self.next_as(Message::decode).await
    }

    /// The next message, of whatever kind `decode` reads.
    pub async fn next_as<T>(
        &mut self,
        decode: fn(&[u8]) -> std::result::Result<T, &'static str>,
    ) -> Result<T> {
        loop {
            if let Some(m) = self.take(decode)? {
                return Ok(m);
            }
            if self.taken == self.input.len() {
                self.input.clear();
                self.taken = 0;
                if self.input.capacity() > KEEP {
                    self.input = Vec::new();
                }
            } else if self.taken >= CHUNK {
                self.input.drain(..self.taken);
                self.taken = 0;
            }
            self.input.reserve(CHUNK);
            let CopyBoth {
                reader,
                writer,
                input,
                out,
                written,
                ..
            } = self;
            let written = tokio::select! {
                n = reader.read_buf(input) => match n {
                    Ok(0) => return Err(lost(&io::ErrorKind::UnexpectedEof.into())),
                    Ok(_) => 0,
                    Err(e) => return Err(lost(&e)),
                },
                n = writer.write(&out[*written..]), if *written < out.len() => {
                    n.map_err(|e| lost(&e))?
                }
            };
            if written > 0 {
                self.wrote(written);
            }
        }
    }

    /// Writes some of what waits. May be dropped and called again.
    pub async fn write(&mut self) -> Result<()> {
        let n = self.writer.write(&self.out[self.written..]).await;
        self.wrote(n.map_err(|e| lost(&e))?);
        Ok(())
    }

    /// So many bytes are written.
    fn wrote(&mut self, n: usize) {
        self.written += n;
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
            if self.out.capacity() > KEEP {
                self.out = Vec::new();
            }
        }
    }

    /// Writes everything, for a last message.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.writer.write_all(&self.out[self.written..]).await?;
        self.out.clear();
        self.written = 0;
        self.writer.flush().await
    }

    /// A whole message at the front of the input.
    fn take<T>(
        &mut self,
        decode: fn(&[u8]) -> std::result::Result<T, &'static str>,
    ) -> Result<Option<T>> {
        let have = &self.input[self.taken..];
        let Some(head) = have.first_chunk::<5>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if !(4..=self.most).contains(&len) {
            return Err(broken("a message of an impossible length"));
        }
        if have.len() <= len {
            return Ok(None);
        }
        let body = &have[5..=len];
        let message = match head[0] {
            b'd' => decode(body).map_err(broken)?,
            b'E' => return Err(server_error(body)),
            // The other end is done: CopyDone, Terminate.
            b'c' | b'X' => return Err(lost(&io::ErrorKind::UnexpectedEof.into())),
            t => return Err(broken(&format!("a message of type 0x{t:02x}"))),
        };
        self.taken += len + 1;
        Ok(Some(message))
    }
}

/// 08P01.
pub fn broken(what: &str) -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, format!("replication: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Position;

    #[tokio::test]
    async fn both_ends_send_much_and_neither_stops_the_other() {
        // A pipe far smaller than what each has to say.
        let (a, b) = tokio::io::duplex(4096);
        let (mut a, mut b) = (CopyBoth::new(a, vec![]), CopyBoth::new(b, vec![]));
        let resume = |n: u64| Message::Resume {
            from: Position::from_u64(n),
        };
        for n in 0..2000 {
            a.send(&resume(n));
            b.send(&resume(n));
        }
        // Each goes on by itself: one that has its message and is not asked again writes nothing.
        async fn hear_all(mut end: CopyBoth<tokio::io::DuplexStream>) {
            for n in 0..2000 {
                let m = end.next().await.unwrap();
                assert!(matches!(m, Message::Resume { from } if from.as_u64() == n));
            }
            end.flush().await.unwrap();
        }
        tokio::join!(hear_all(a), hear_all(b));
    }

    #[tokio::test]
    async fn a_stranger_is_not_waited_for_with_a_long_message() {
        use tokio::io::AsyncWriteExt;
        let (mut a, b) = tokio::io::duplex(64);
        let head = (MAX_OF_STRANGERS as u32 + 1).to_be_bytes();
        a.write_all(&[&b"d"[..], &head].concat()).await.unwrap();
        let refused = CopyBoth::new(b, vec![]).of_stranger().next().await;
        assert_eq!(refused.unwrap_err().code(), SqlState::PROTOCOL_VIOLATION);
    }

    #[tokio::test]
    async fn rubbish_and_an_end_are_errors() {
        use tokio::io::AsyncWriteExt;
        for bytes in [
            &b"d\0\0\0\x05\xff"[..],
            b"Q\0\0\0\x04",
            b"d\xff\xff\xff\xff",
            b"d\0\0",
        ] {
            let (mut a, b) = tokio::io::duplex(64);
            a.write_all(bytes).await.unwrap();
            drop(a);
            assert!(CopyBoth::new(b, vec![]).next().await.is_err(), "{bytes:?}");
        }
    }
}
