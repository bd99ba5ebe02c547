//! Logs against a naive model, and followed while they are written and rotated.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt as _;
use jiff::Timestamp;
use proptest::prelude::*;
use tokio::sync::watch;

use super::super::{LogQuery, Source, file, rotated};
use super::stream;

/// What a test's container writes: seconds since the start, the stream, whether it is a part, the text.
type Wrote = (u8, Source, bool, String);

fn time(seconds: u8) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + i64::from(seconds)).unwrap()
}

fn line(wrote: &Wrote) -> String {
    let (seconds, source, is_part, text) = wrote;
    let mark = if *is_part { 'P' } else { 'F' };
    format!("{:.9} {} {mark} {text}\n", time(*seconds), source.word())
}

/// All of a log that is not followed.
async fn read(folder: &Path, query: LogQuery) -> Vec<u8> {
    let (_, running) = watch::channel(false);
    let all: Vec<bytes::Bytes> = stream(folder.to_owned(), 0, query, running).collect().await;
    all.concat()
}

/// What should be shown, all at once and without care for memory.
fn model(wrote: &[Wrote], query: &LogQuery) -> Vec<u8> {
    let mut begun: Vec<(u8, Source, String)> = Vec::new();
    let mut lines: Vec<(u8, Source, String)> = Vec::new();
    for (seconds, source, is_part, text) in wrote {
        let known = begun.iter().position(|(_, known, _)| known == source);
        let (first, _, before) = known.map_or((*seconds, *source, String::new()), |at| begun.remove(at));
        let text = before + text;
        if *is_part {
            // Its place among those that have begun is where it began.
            begun.insert(known.unwrap_or(begun.len()), (first, *source, text));
        } else {
            lines.push((first, *source, text + "\n"));
        }
    }
    lines.extend(begun);
    let tail = query
        .tail_lines
        .map_or(lines.len(), |tail| usize::try_from(tail).unwrap());
    let from = lines.len().saturating_sub(tail);
    let mut shown = String::new();
    for (seconds, source, text) in &lines[from..] {
        let is_late = query.since.is_none_or(|since| time(*seconds) >= since);
        if is_late && query.source.is_none_or(|wanted| wanted == *source) {
            if query.timestamps {
                shown.push_str(&format!("{:.9} ", time(*seconds)));
            }
            shown.push_str(text);
        }
    }
    let limit = query
        .limit_bytes
        .map_or(shown.len(), |limit| usize::try_from(limit).unwrap());
    shown.as_bytes()[..limit.min(shown.len())].to_vec()
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![Just(Source::Stdout), Just(Source::Stderr)]
}

fn query() -> impl Strategy<Value = LogQuery> {
    (
        any::<bool>(),
        proptest::option::of(0..60_u8),
        proptest::option::of(0..30_u64),
        proptest::option::of(1..400_u64),
        proptest::option::weighted(0.2, source()),
    )
        .prop_map(|(timestamps, since, tail_lines, limit_bytes, source)| LogQuery {
            timestamps,
            since: since.map(time),
            tail_lines,
            limit_bytes,
            source,
            ..LogQuery::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn a_log_is_joined_chosen_and_cut_like_the_naive_one(
        mut wrote in proptest::collection::vec((0..60_u8, source(), any::<bool>(), "[a-c ]{0,12}"), 0..40),
        cuts in proptest::collection::vec(0..40_usize, 0..4),
        query in query(),
    ) {
        wrote.sort_by_key(|(seconds, ..)| *seconds);
        let folder = tempfile::tempdir().unwrap();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(wrote.len())).collect();
        cuts.sort_unstable();
        cuts.push(wrote.len());
        let mut from = 0;
        for (index, cut) in cuts.iter().enumerate() {
            let text: String = wrote[from..*cut].iter().map(line).collect();
            let number = u32::try_from(cuts.len() - 1 - index).unwrap();
            let path = if number == 0 { file(folder.path(), 0) } else { rotated(folder.path(), 0, number) };
            fs::write(path, text).unwrap();
            from = *cut;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let shown = runtime.block_on(read(folder.path(), query.clone()));
        let expected = model(&wrote, &query);
        prop_assert_eq!(String::from_utf8(shown).unwrap(), String::from_utf8(expected).unwrap());
    }
}

/// A log that is written, rotated and followed.
struct Writer {
    folder: tempfile::TempDir,
    running: watch::Sender<bool>,
}

impl Writer {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            running: watch::Sender::new(true),
        }
    }

    fn write(&self, text: &str) {
        self.write_raw(&line(&(0, Source::Stdout, false, text.to_owned())));
    }

    fn write_raw(&self, text: &str) {
        let path = file(self.folder.path(), 0);
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// As the supervisor does: five files in all.
    fn rotate(&self) {
        for number in (0..4_u32).rev() {
            let from = match number {
                0 => file(self.folder.path(), 0),
                number => rotated(self.folder.path(), 0, number),
            };
            if from.exists() {
                fs::rename(from, rotated(self.folder.path(), 0, number + 1)).unwrap();
            }
        }
    }

    fn follow(&self, query: LogQuery) -> crate::node::door::LogStream {
        let query = LogQuery { follow: true, ..query };
        stream(self.folder.path().to_owned(), 0, query, self.running.subscribe())
    }
}

/// As many bytes of a stream as these, which it must give.
async fn expect(stream: &mut crate::node::door::LogStream, expected: &str) {
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let next = tokio::time::timeout(std::time::Duration::from_secs(30), stream.next());
        let bytes = next.await.expect("in time").expect("not the end");
        seen.extend_from_slice(&bytes);
    }
    assert_eq!(String::from_utf8(seen).unwrap(), expected);
}

#[tokio::test]
async fn a_followed_log_goes_on_across_rotations_and_ends_with_its_container() {
    let writer = Writer::new();
    let mut stream = writer.follow(LogQuery::default());
    let all = async {
        expect(&mut stream, "one\n").await;
        writer.write("two");
        writer.rotate();
        writer.write("three");
        expect(&mut stream, "two\nthree\n").await;
        // Twice while nobody looks.
        writer.write("four");
        writer.rotate();
        writer.write("five");
        writer.rotate();
        writer.write("six");
        expect(&mut stream, "four\nfive\nsix\n").await;
        writer.write("seven");
        writer.running.send_replace(false);
        expect(&mut stream, "seven\n").await;
        assert_eq!(stream.next().await, None);
    };
    // Nothing was written yet when following began.
    writer.write("one");
    all.await;
}

/// Waits until a reader has come so far.
fn until(seen: &AtomicUsize, count: usize) {
    for _ in 0..30_000 {
        if seen.load(Ordering::Relaxed) >= count {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("only {} of {count} lines were seen", seen.load(Ordering::Relaxed));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_line_is_lost_or_seen_twice_while_files_move_under_the_reader() {
    const ROTATIONS: usize = 60;
    const LINES: usize = 40;
    let writer = Writer::new();
    let mut stream = writer.follow(LogQuery::default());
    let seen = Arc::new(AtomicUsize::new(0));
    let seen_by_writer = seen.clone();
    let writing = tokio::task::spawn_blocking(move || {
        for rotation in 0..ROTATIONS {
            // The oldest file goes only after it was read.
            until(&seen_by_writer, (rotation * LINES).saturating_sub(3 * LINES));
            for line in 0..LINES {
                writer.write(&(rotation * LINES + line).to_string());
            }
            writer.rotate();
        }
        writer.running.send_replace(false);
        // The folder goes with it.
        writer
    });
    let mut text = String::new();
    while let Some(bytes) = stream.next().await {
        text.push_str(std::str::from_utf8(&bytes).unwrap());
        seen.store(text.matches('\n').count(), Ordering::Relaxed);
    }
    writing.await.unwrap();
    let expected: String = (0..ROTATIONS * LINES).map(|number| format!("{number}\n")).collect();
    assert!(text == expected, "{} of {} bytes", text.len(), expected.len());
}

#[tokio::test]
async fn a_followed_tail_begins_with_the_last_lines_and_waits_for_the_end_of_a_line() {
    let writer = Writer::new();
    for text in ["one", "two", "three"] {
        writer.write(text);
    }
    let mut stream = writer.follow(LogQuery {
        tail_lines: Some(1),
        ..LogQuery::default()
    });
    expect(&mut stream, "three\n").await;
    let whole = line(&(0, Source::Stdout, false, "four".to_owned()));
    let (first, second) = whole.split_at(9);
    writer.write_raw(first);
    writer.write_raw(second);
    expect(&mut stream, "four\n").await;
    writer.write_raw(&line(&(0, Source::Stdout, true, "no end".to_owned())));
    drop(writer.running);
    expect(&mut stream, "no end").await;
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_followed_log_ends_at_its_limit() {
    let writer = Writer::new();
    let mut stream = writer.follow(LogQuery {
        limit_bytes: Some(6),
        ..LogQuery::default()
    });
    writer.write("one");
    writer.write("two");
    expect(&mut stream, "one\ntw").await;
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_container_that_said_nothing_has_an_empty_log() {
    let folder = tempfile::tempdir().unwrap();
    assert!(read(folder.path(), LogQuery::default()).await.is_empty());
    assert!(read(&folder.path().join("none"), LogQuery::default()).await.is_empty());
}

#[tokio::test]
async fn lines_that_a_killed_writer_spoiled_are_passed_over() {
    let writer = Writer::new();
    writer.write_raw("2026-11-16T10:0\n");
    writer.write("good");
    writer.write_raw(&"x".repeat(200_000));
    writer.write_raw("\n");
    writer.write("better");
    writer.write_raw("2026-11-16T10:00:00Z stdout F torn");
    let shown = read(writer.folder.path(), LogQuery::default()).await;
    assert_eq!(String::from_utf8(shown).unwrap(), "good\nbetter\ntorn\n");
}

#[tokio::test]
async fn a_line_without_end_is_shown_in_pieces_and_not_kept() {
    let writer = Writer::new();
    let part = line(&(0, Source::Stdout, true, "y".repeat(16 * 1024)));
    for _ in 0..200 {
        writer.write_raw(&part);
    }
    writer.write("");
    let query = LogQuery {
        timestamps: true,
        ..LogQuery::default()
    };
    let shown = read(writer.folder.path(), query).await;
    assert_eq!(
        shown.len(),
        "2027-01-15T08:00:00.000000000Z ".len() + 200 * 16 * 1024 + 1
    );
}
