//! A proxy that breaks connections as the test plans: it stands for the network between client and
//! server.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// The fault of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Closed at once.
    Refuse,
    /// Reset after this many bytes to the server.
    ResetUp(usize),
    /// Reset after this many bytes from the server.
    ResetDown(usize),
    /// Closed cleanly, but early, after this many bytes to the server.
    CutUp(usize),
    /// Closed cleanly, but early, after this many bytes from the server.
    CutDown(usize),
    /// Silent after this many bytes from the server. The connection stays open.
    Stall(usize),
    /// Each piece is delayed.
    Slow,
    /// Answered by the proxy, in HTTP, instead of the server.
    Answer(&'static str),
    /// Answered by the proxy after the server has executed the request.
    AnswerAfter(&'static str),
}

#[derive(Default)]
struct State {
    /// Faults for the coming connections, in order. Connections after these are not disturbed.
    faults: VecDeque<Fault>,
    /// The same for the data connections of FTP.
    data_faults: VecDeque<Fault>,
    open: Vec<TcpStream>,
    broken_count: usize,
}

/// A port that forwards to another one.
pub struct Proxy {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

impl Proxy {
    pub fn to(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        // The thread ends with the process. Nothing else listens on this port.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let fault = shared.lock().faults.pop_front();
                serve(&shared, client, server_port, fault, true);
            }
        });
        Self { port, state }
    }

    /// Breaks the open connections, and plans faults for the coming ones.
    pub fn plan(&self, faults: &[Fault]) {
        self.plan_both(faults, &[]);
    }

    pub fn plan_both(&self, faults: &[Fault], data_faults: &[Fault]) {
        let mut state = self.state.lock();
        state.faults = faults.iter().copied().collect();
        state.data_faults = data_faults.iter().copied().collect();
        for connection in state.open.drain(..) {
            drop(connection.shutdown(Shutdown::Both));
        }
    }

    /// The number of connections that were broken.
    pub fn broken_count(&self) -> usize {
        self.state.lock().broken_count
    }
}

fn serve(
    state: &Arc<Mutex<State>>,
    client: TcpStream,
    server_port: u16,
    fault: Option<Fault>,
    is_control: bool,
) {
    if fault.is_some() {
        state.lock().broken_count += 1;
    }
    if fault == Some(Fault::Refuse) {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)) else { return };
    let copy = |stream: &TcpStream| stream.try_clone().unwrap();
    state.lock().open.extend([copy(&client), copy(&server)]);
    let up = (copy(&client), copy(&server));
    let down = (server, client);
    std::thread::spawn(move || carry_up(up.0, up.1, fault));
    let state = Arc::clone(state);
    std::thread::spawn(move || carry_down(&state, down.0, down.1, fault, is_control));
}

fn carry_up(mut client: TcpStream, mut server: TcpStream, fault: Option<Fault>) {
    let mut carried = 0;
    let mut piece = [0; 4096];
    while let Ok(taken @ 1..) = client.read(&mut piece) {
        let limit = match fault {
            Some(Fault::ResetUp(limit) | Fault::CutUp(limit)) => limit,
            Some(Fault::Answer(answer)) => {
                drop(client.write_all(answer.as_bytes()));
                // The pause lets the client read the answer before the reset, which the unread
                // bytes cause.
                std::thread::sleep(Duration::from_millis(30));
                end(&client, &server, false);
                return;
            }
            Some(Fault::Slow) => {
                std::thread::sleep(Duration::from_millis(2));
                usize::MAX
            }
            _ => usize::MAX,
        };
        let passed = taken.min(limit - carried);
        if server.write_all(&piece[..passed]).is_err() {
            end(&client, &server, true);
            return;
        }
        carried += passed;
        if carried >= limit {
            end(&client, &server, matches!(fault, Some(Fault::ResetUp(_))));
            return;
        }
    }
    drop(server.shutdown(Shutdown::Write));
}

fn carry_down(
    state: &Arc<Mutex<State>>,
    mut server: TcpStream,
    mut client: TcpStream,
    fault: Option<Fault>,
    is_control: bool,
) {
    let mut carried = 0;
    let mut piece = [0; 4096];
    while let Ok(taken @ 1..) = server.read(&mut piece) {
        let mut bytes = piece[..taken].to_vec();
        if is_control {
            lead_data_through_us(state, &mut bytes);
        }
        let limit = match fault {
            Some(Fault::ResetDown(limit) | Fault::CutDown(limit) | Fault::Stall(limit)) => limit,
            Some(Fault::AnswerAfter(answer)) => {
                drop(client.write_all(answer.as_bytes()));
                std::thread::sleep(Duration::from_millis(30));
                end(&client, &server, false);
                return;
            }
            Some(Fault::Slow) => {
                std::thread::sleep(Duration::from_millis(2));
                usize::MAX
            }
            _ => usize::MAX,
        };
        let passed = bytes.len().min(limit - carried);
        if client.write_all(&bytes[..passed]).is_err() {
            // Otherwise the server would wait for ever for room in a connection that nobody reads:
            // `open` holds the connection as well.
            end(&client, &server, true);
            return;
        }
        carried += passed;
        if carried >= limit {
            if matches!(fault, Some(Fault::Stall(_))) {
                // Until the other side gives up.
                while let Ok(1..) = server.read(&mut piece) {}
            }
            end(&client, &server, matches!(fault, Some(Fault::ResetDown(_))));
            return;
        }
    }
    drop(client.shutdown(Shutdown::Write));
}

/// FTP names a port for the data. This replaces it by a port of the proxy.
fn lead_data_through_us(state: &Arc<Mutex<State>>, bytes: &mut Vec<u8>) {
    let Some(text) = bytes.strip_prefix(b"227 ").and_then(|rest| std::str::from_utf8(rest).ok()) else {
        return;
    };
    let numbers: Vec<u16> =
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
    let &[.., high, low] = numbers.as_slice() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        if let Ok((client, _)) = listener.accept() {
            let fault = state.lock().data_faults.pop_front();
            serve(&state, client, high * 256 + low, fault, false);
        }
    });
    *bytes = format!("227 Entering Passive Mode (127,0,0,1,{},{}).\r\n", port / 256, port % 256).into_bytes();
}

fn end(one: &TcpStream, other: &TcpStream, with_reset: bool) {
    for stream in [one, other] {
        if with_reset {
            // Connecting to an unspecified address resets the connection, even if the socket has
            // other holders.
            let outcome = rustix::net::connect_unspec(stream);
            assert!(outcome.is_ok() || outcome == Err(rustix::io::Errno::NOTCONN), "{outcome:?}");
        } else {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}
