//! A link that takes time: a proxy of bytes on an address of its own, which holds each piece until it is due.
//!
//! A delay shifts the stream and does not thin it. Each direction of a connection has a thread that reads and one that writes.
//!
//! Left out on purpose: links that lose or break (`canon::Cluster` has those).

use crate::Result;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Opens a link to this port whose bytes take `one_way` in each direction; its own port. It lasts as long as the process.
pub fn link(to: u16, one_way: Duration) -> Result<u16> {
    let fail = |e: std::io::Error| format!("a delayed link: {e}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
    let port = listener.local_addr().map_err(fail)?.port();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            if let Ok(far) = TcpStream::connect(("127.0.0.1", to)) {
                let copies = near.try_clone().and_then(|n| Ok((n, far.try_clone()?)));
                let Ok((near_too, far_too)) = copies else {
                    continue;
                };
                carry(near, far, one_way);
                carry(far_too, near_too, one_way);
            }
        }
    });
    Ok(port)
}

fn carry(mut from: TcpStream, mut to: TcpStream, one_way: Duration) {
    let (put, take) = mpsc::channel::<(Instant, Vec<u8>)>();
    let _ = to.set_nodelay(true);
    std::thread::spawn(move || {
        let mut piece = vec![0; 64 << 10];
        while let Ok(n) = from.read(&mut piece) {
            let due = Instant::now() + one_way;
            if n == 0 || put.send((due, piece[..n].to_vec())).is_err() {
                break;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, piece) in take {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_not_before_its_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("bound").port();
        let port = link(to, Duration::from_millis(20)).expect("a link");
        let mut near = TcpStream::connect(("127.0.0.1", port)).expect("the link");
        let began = Instant::now();
        near.write_all(b"there").expect("written");
        let (mut far, _) = listener.accept().expect("the other end");
        let mut heard = [0; 5];
        far.read_exact(&mut heard).expect("heard");
        assert_eq!(&heard, b"there");
        assert!(began.elapsed() >= Duration::from_millis(20));
        drop(near);
        assert_eq!(far.read(&mut heard).expect("the end"), 0);
    }
}
