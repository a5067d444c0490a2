//! Where frames end, and their words.

use bytes::{Bytes, BytesMut};
use tests::resp::{take_frame, words};

const FRAMES: &[&[u8]] = &[
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":-1\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$4\r\na\r\nb\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"(123\r\n",
    b"=5\r\ntxt:x\r\n",
    b"!3\r\nERR\r\n",
    b"~1\r\n+x\r\n",
    b"%1\r\n+k\r\n:1\r\n",
    b"|1\r\n+a\r\n+b\r\n$1\r\nv\r\n",
    b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n",
];

#[test]
fn every_kind_of_frame_ends_where_it_ends() {
    let mut stream = BytesMut::new();
    for frame in FRAMES {
        for cut in 0..frame.len() {
            let mut part = BytesMut::from(&frame[..cut]);
            assert!(
                take_frame(&mut part).unwrap().is_none(),
                "{frame:?} cut at {cut}"
            );
        }
        stream.extend_from_slice(frame);
    }
    for frame in FRAMES {
        assert_eq!(take_frame(&mut stream).unwrap().unwrap(), *frame);
    }
    assert!(stream.is_empty());
}

#[test]
fn words_of_arrays_and_inline_commands() {
    let request = Bytes::from_static(b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n");
    assert_eq!(words(&request), [&b"SET"[..], b"", b"a\r\nb"]);
    assert_eq!(
        words(&Bytes::from_static(b"PING  x\r\n")),
        [&b"PING"[..], b"x"]
    );
    let confirmation = Bytes::from_static(b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    assert_eq!(words(&confirmation), [&b"subscribe"[..], b"c", b"1"]);
}

#[test]
fn a_length_that_is_no_number_is_malformed() {
    assert!(take_frame(&mut BytesMut::from("*x\r\n")).is_err());
}
