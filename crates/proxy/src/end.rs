//! One end of a proxied session: a socket, what has come over it, and what is to be sent.

use base::{Error, Result, SqlState};
use bytes::BytesMut;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Longest message.
pub const MAX_MESSAGE: usize = 1 << 30;
/// The same of a client that has not proved who it is.
pub const MAX_WORD: usize = 64 << 10;
pub const CHUNK: usize = 16 << 10;

/// One end.
pub struct End {
    pub reader: OwnedReadHalf,
    pub writer: OwnedWriteHalf,
    pub input: BytesMut,
    pub output: BytesMut,
    /// Longest message that is taken.
    pub most: usize,
}

impl End {
    pub fn new(stream: TcpStream, input: &[u8]) -> End {
        _ = stream.set_nodelay(true);
        let (reader, writer) = stream.into_split();
        End {
            reader,
            writer,
            input: BytesMut::from(input),
            output: BytesMut::new(),
            most: MAX_MESSAGE,
        }
    }

    pub async fn fill(&mut self) -> io::Result<()> {
        self.input.reserve(CHUNK);
        match self.reader.read_buf(&mut self.input).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    pub async fn flush(&mut self) -> io::Result<()> {
        self.writer.write_all_buf(&mut self.output).await
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub fn message(&mut self) -> Result<Option<(u8, BytesMut)>> {
        let Some(head) = self.input.first_chunk::<5>() else {
            return Ok(None);
        };
        let (kind, len) = (head[0], [head[1], head[2], head[3], head[4]]);
        let len = u32::from_be_bytes(len) as usize;
        if !(4..=self.most).contains(&len) {
            return Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                "invalid message length",
            ));
        }
        if self.input.len() <= len {
            return Ok(None);
        }
        Ok(Some((kind, self.input.split_to(len + 1))))
    }

    /// The next whole message, waited for.
    pub async fn next(&mut self) -> Result<(u8, BytesMut)> {
        loop {
            if let Some(m) = self.message()? {
                return Ok(m);
            }
            self.fill().await.map_err(|e| gone(&e))?;
        }
    }
}

/// The other side is not there any more.
pub fn gone(e: &io::Error) -> Error {
    Error::new(
        SqlState::CONNECTION_FAILURE,
        format!("connection lost: {e}"),
    )
}
