//! An FTP server that sends one byte now and then: it is never silent for long, and is given up.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use varve_remote::{PutMode, TargetError, open};
use varve_world::FileName;

use crate::hostile::options;

/// The part of the conversation that never ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trickle {
    Greeting,
    Reply,
    Data,
    EndOfTransfer,
}

fn server(trickle: Trickle) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The thread ends with the process. Nothing else listens on this port.
    std::thread::spawn(move || {
        for control in listener.incoming().flatten() {
            std::thread::spawn(move || drop(converse(control, trickle)));
        }
    });
    port
}

fn converse(mut control: TcpStream, trickle: Trickle) -> std::io::Result<()> {
    if trickle == Trickle::Greeting {
        return drip(&mut control);
    }
    control.write_all(b"220 welcome\r\n")?;
    let mut data = None;
    for line in BufReader::new(control.try_clone()?).lines() {
        let line = line?;
        let reply = match line.split(' ').next().unwrap_or_default() {
            "USER" => "331 and the password".to_owned(),
            "PASS" => "230 come in".to_owned(),
            "TYPE" => "200 as you like".to_owned(),
            "FEAT" => "211-Features\r\n MLST size*;type*;\r\n211 End".to_owned(),
            "PWD" => "257 \"/\"".to_owned(),
            "SIZE" if trickle == Trickle::Reply => return drip(&mut control),
            "SIZE" => "213 1000".to_owned(),
            "PASV" => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let port = listener.local_addr()?.port();
                data = Some(listener);
                format!("227 here (127,0,0,1,{},{})", port >> 8, port & 255)
            }
            "RETR" | "MLSD" | "STOR" => {
                control.write_all(b"150 it begins\r\n")?;
                let (mut stream, _) = data.take().expect("PASV comes before").accept()?;
                match trickle {
                    Trickle::Data => drip(&mut stream)?,
                    _ => drop(stream),
                }
                return drip(&mut control);
            }
            _ => "500 no".to_owned(),
        };
        control.write_all(format!("{reply}\r\n").as_bytes())?;
    }
    Ok(())
}

/// The bytes are the beginning of a reply and of a listing that never end.
fn drip(stream: &mut TcpStream) -> std::io::Result<()> {
    for byte in b"220-".iter().chain(std::iter::repeat(&b'x')) {
        stream.write_all(&[*byte])?;
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[test]
fn a_trickle_is_given_up() {
    let name = FileName::new("object").unwrap();
    for trickle in [Trickle::Greeting, Trickle::Reply, Trickle::Data, Trickle::EndOfTransfer] {
        let mut options = options();
        options.patience.try_count_max = 1;
        options.patience.silence_max = Duration::from_millis(700);
        let target = open(&format!("ftp://127.0.0.1:{}/in", server(trickle)), &options).unwrap();
        let timed = |call: &dyn Fn() -> Result<(), TargetError>| {
            let begun = Instant::now();
            let outcome = call();
            assert!(matches!(outcome, Err(TargetError::Failed { .. })), "{trickle:?}: {outcome:?}");
            assert!(begun.elapsed() < Duration::from_secs(5), "{trickle:?}: {:?}", begun.elapsed());
        };
        timed(&|| target.get(&name, 0..1000).map(drop));
        timed(&|| target.get_whole(&name, 1 << 20, None).map(drop));
        if trickle != Trickle::Reply {
            timed(&|| target.list("").map(drop));
        }
        if trickle != Trickle::Data {
            timed(&|| target.put(&name, Bytes::from_static(b"x"), PutMode::Replace));
        }
    }
}

#[test]
fn a_call_ends_soon_after_its_caller() {
    let mut options = options();
    options.stop.set();
    options.patience.silence_max = Duration::from_secs(60);
    let target = open(&format!("ftp://127.0.0.1:{}/in", server(Trickle::Data)), &options).unwrap();
    let begun = Instant::now();
    assert!(target.get(&FileName::new("object").unwrap(), 0..1000).is_err());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
