//! The packets on their way from one device to the other.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tun_rs::SyncDevice;

use super::LinkOptions;
use super::traffic::{Direction, data_len};

/// A packet, and the time at which it arrives.
pub(super) type Due = (Instant, Vec<u8>);

/// Takes packets from a device until the link is over, and decides when they arrive.
pub(super) fn receive(
    from: &SyncDevice,
    (options, sender): (LinkOptions, SyncSender<Due>),
    traffic: &Direction,
    is_over: &AtomicBool,
) {
    let mut pace = Pace::new(options);
    let mut buffer = vec![0; PACKET_LEN_MAX];
    while !is_over.load(Relaxed) {
        match from.recv(&mut buffer) {
            Ok(len) => {
                let packet = buffer.get(..len).unwrap_or_default();
                let is_lost = traffic.count(packet, options.stalls);
                if !is_lost && let Some(due) = pace.due(Instant::now(), packet) {
                    // A full queue loses the packet, as that of a router does.
                    let _ = sender.try_send((due, packet.to_vec()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut fds = [PollFd::new(from, PollFlags::IN)];
                let wait = Timespec::try_from(WAIT).unwrap_or_default();
                let _: Result<usize, _> = poll(&mut fds, Some(&wait));
            }
            Err(_) => return,
        }
    }
}

/// Gives packets to a device when they are due.
pub(super) fn send(to: &SyncDevice, due: &Receiver<Due>) {
    for (time, packet) in due {
        thread::sleep(time.saturating_duration_since(Instant::now()));
        // The kernel loses packets that it has no room for.
        let _: io::Result<usize> = to.send(&packet);
    }
}

/// Decides when packets arrive, and which of them are lost.
struct Pace {
    options: LinkOptions,
    /// When the sender has sent all packets before.
    free_at: Option<Instant>,
    /// How many packets had data.
    packets: u64,
}

impl Pace {
    fn new(options: LinkOptions) -> Pace {
        Pace {
            options,
            free_at: None,
            packets: 0,
        }
    }

    /// Returns `None` for a packet that is lost.
    fn due(&mut self, now: Instant, packet: &[u8]) -> Option<Instant> {
        if let Some(loss) = self.options.loss
            && data_len(packet) > 0
        {
            self.packets += 1;
            if self.packets.is_multiple_of(loss) {
                return None;
            }
        }
        let mut sent = now;
        if let Some(rate) = self.options.rate {
            let begin = self.free_at.map_or(now, |free_at| free_at.max(now));
            if begin.duration_since(now) > QUEUE_TIME_MAX {
                return None;
            }
            let bits = packet.len() as f64 * 8.0;
            sent = begin + Duration::from_secs_f64(bits / rate as f64);
            self.free_at = Some(sent);
        }
        Some(sent + self.options.round_trip / 2)
    }
}

/// The kernel passes up to 64 KiB of one connection as one packet, with a header in front.
const PACKET_LEN_MAX: usize = 80 * 1024;

/// How long a router keeps packets that it cannot send yet.
const QUEUE_TIME_MAX: Duration = Duration::from_millis(200);

const WAIT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: LinkOptions = LinkOptions {
        round_trip: Duration::from_millis(50),
        rate: None,
        loss: None,
        stalls: None,
    };

    #[test]
    fn packet_arrives_after_half_a_round_trip() {
        let now = Instant::now();
        let due = Pace::new(OPTIONS).due(now, &[0; 1500]);
        assert_eq!(due, Some(now + Duration::from_millis(25)));
    }

    #[test]
    fn packets_wait_for_their_turn_and_are_lost_if_it_comes_late() {
        let rate = Some(1_000_000);
        let mut pace = Pace::new(LinkOptions { rate, ..OPTIONS });
        let now = Instant::now();
        // Each packet takes 10 ms.
        let due: Vec<Option<Instant>> = (0..22).map(|_| pace.due(now, &[0; 1250])).collect();
        assert_eq!(due[0], Some(now + Duration::from_millis(35)));
        assert_eq!(due[20], Some(now + Duration::from_millis(235)));
        assert_eq!(due[21], None);
        let later = now + Duration::from_secs(1);
        let due = pace.due(later, &[0; 1250]);
        assert_eq!(due, Some(later + Duration::from_millis(35)));
    }
}
