//! Finds the linear logical volumes of LVM on one disk. A linear volume consists of consecutive
//! segments.
//!
//! Every member of a group has a label in one of its first sectors. The label leads to a text that
//! describes the whole group. The text with the highest sequence number counts.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod text;

use std::ops::Range;
use std::sync::Arc;

use text::LvmSection;
use varve_block::to_usize;

use crate::bytes::crc::crc32_from;
use crate::bytes::fields::{array_at, has_at, u32_at, u64_at};
use crate::bytes::read_at::ReadAt;
use crate::contents::volume_content::VolumeContent;
use crate::disks::disk_problem::DiskProblem;
use crate::disks::volume::Volume;

const SECTOR_BYTES: u64 = 512;
const AREA_MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
const CHECKSUM_SEED: u32 = 0xf597_a6cf;
/// LVM itself makes areas of one megabyte.
const TEXT_BYTES_MAX: u64 = 8 << 20;
const AREA_COUNT_MAX: usize = 8;

/// The letters of a group's id that are shown beside a name that two groups have.
const SHOWN_ID_LETTERS: usize = 6;

/// Groups with their names.
type VolumeGroups = Vec<(String, LvmSection)>;

/// A group, as the text with the highest sequence number describes it.
struct VolumeGroup {
    name: String,
    /// The name alone is not unique: a cloned or moved disk brings its groups along.
    id: String,
    number: i64,
    description: LvmSection,
}

/// A volume that is a member of a group.
struct GroupMember<'a> {
    volume: &'a Volume,
    /// The UUID, without the dashes that it has in texts.
    id: [u8; 32],
}

/// Returns the linear logical volumes of all groups that have members among `volumes`.
pub(crate) fn volumes(
    disk: &Arc<dyn ReadAt>,
    volumes: &[Volume],
    problems: &mut Vec<DiskProblem>,
) -> Vec<Volume> {
    let mut members = Vec::new();
    let mut groups: Vec<VolumeGroup> = Vec::new();
    for volume in volumes.iter().filter(|volume| volume.content() == VolumeContent::LvmMember) {
        match read_member(volume) {
            Ok((id, found)) => {
                members.push(GroupMember { volume, id });
                for (name, description) in found {
                    add_newest(&mut groups, name, description);
                }
            }
            Err(problem) => problems.push(DiskProblem::new(volume.name(), problem)),
        }
    }
    // Groups of one name stay in the order of their first members.
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    let mut found = Vec::new();
    for (place, group) in groups.iter().enumerate() {
        let is_second = groups.iter().take(place).any(|other| other.name == group.name);
        let shown_group = group.shown_name(is_second);
        if is_second && is_name(&group.name) {
            let problem = format!("has the name of another group; its volumes are shown as {shown_group}-…");
            problems.push(DiskProblem::new(
                format!("the volume group {} with id {}", group.name, group.id),
                problem,
            ));
        }
        let volumes = group.description.section("logical_volumes").into_iter().flat_map(LvmSection::sections);
        for (volume_name, description) in volumes {
            let is_visible = description.texts("status").any(|status| status == "VISIBLE");
            if !is_visible {
                continue;
            }
            let volume_name = known_name(volume_name, description);
            let shown = format!("{shown_group}-{}", volume_name.replace('-', "--"));
            match pieces(&group.description, description, &members) {
                _ if !is_name(&group.name) || !is_name(volume_name) => {
                    problems.push(DiskProblem::new("a logical volume", "has a name that LVM does not allow"));
                }
                Ok((pieces, problem)) => {
                    let is_cut_off = problem.is_some();
                    problems.extend(problem.map(|problem| DiskProblem::new(&shown, problem)));
                    found.push(Volume::logical(disk, shown, pieces, is_cut_off));
                }
                Err(problem) => problems.push(DiskProblem::new(shown, problem)),
            }
        }
    }
    found
}

impl VolumeGroup {
    /// Returns the first part of its volumes' names. LVM allows no `@` in a name, so the name of a
    /// second group is not that of any other.
    fn shown_name(&self, is_second: bool) -> String {
        let name = self.name.replace('-', "--");
        if !is_second {
            return name;
        }
        let id = self.id.chars().filter(char::is_ascii_alphanumeric).take(SHOWN_ID_LETTERS);
        format!("{name}@{}", id.collect::<String>())
    }
}

/// Adds a group, or replaces an older description of it.
fn add_newest(groups: &mut Vec<VolumeGroup>, name: String, description: LvmSection) {
    let id = description.text("id").unwrap_or_default().to_owned();
    let number = description.number("seqno").unwrap_or(0);
    match groups.iter_mut().find(|known| known.id == id && (!id.is_empty() || known.name == name)) {
        Some(known) if known.number >= number => {}
        Some(known) => *known = VolumeGroup { name, id, number, description },
        None => groups.push(VolumeGroup { name, id, number, description }),
    }
}

/// Returns the name by which people know a volume. LVM describes a snapshot under an internal name,
/// and the user's name is that of the volume that stores its changes.
fn known_name<'a>(name: &'a str, description: &'a LvmSection) -> &'a str {
    let mut segments = description.sections().filter(|(name, _)| name.starts_with("segment"));
    segments.find_map(|(_, segment)| segment.text("cow_store")).unwrap_or(name)
}

fn is_name(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "+_.-".contains(letter);
    !name.is_empty() && name.chars().all(allowed)
}

/// Returns the UUID of a member, and the groups that its texts describe.
fn read_member(volume: &Volume) -> Result<([u8; 32], VolumeGroups), String> {
    let bytes = volume.read();
    let mut head = [0; 2048];
    bytes.read_at(0, &mut head).map_err(|error| format!("has a label that cannot be read: {error}"))?;
    let label = head.chunks_exact(512).find(|sector| has_at(sector, 0, b"LABELONE")).ok_or("has no label")?;
    let header_at = to_usize(u32_at(label, 20));
    let header = label.get(header_at..).ok_or("has a damaged label")?;
    // Two lists of positions, each with an empty one at its end: those of the extents, and those of
    // the texts.
    let mut places = header
        .get(40..)
        .unwrap_or_default()
        .chunks_exact(16)
        .map(|place| (u64_at(place, 0), u64_at(place, 8)));
    places.by_ref().take_while(|place| *place != (0, 0)).for_each(drop);
    let mut groups = Vec::new();
    let mut problem = "has no description of its group".to_owned();
    for (start, size) in places.take_while(|place| *place != (0, 0)).take(AREA_COUNT_MAX) {
        match read_area(&bytes, start, size) {
            Ok(found) => groups.extend(found),
            Err(reason) => problem = reason,
        }
    }
    if groups.is_empty() { Err(problem) } else { Ok((array_at(header, 0), groups)) }
}

/// Reads the text to which an area's header points.
fn read_area(bytes: &dyn ReadAt, start: u64, size: u64) -> Result<VolumeGroups, String> {
    let mut header = [0; 512];
    bytes
        .read_at(start, &mut header)
        .map_err(|error| format!("has a description that cannot be read: {error}"))?;
    if !has_at(&header, 4, AREA_MAGIC) {
        return Err("has a description whose header is damaged".into());
    }
    let (offset, length) = (u64_at(&header, 40), u64_at(&header, 48));
    if length == 0 {
        return Ok(Vec::new());
    }
    if length > TEXT_BYTES_MAX || length > size || offset >= size {
        return Err(format!("has a description with an impossible length of {length} bytes"));
    }
    // The area is a ring after its header.
    let mut text = vec![0; to_usize(length)];
    let before_end = size.saturating_sub(offset).min(length);
    let (first, rest) = text.split_at_mut(to_usize(before_end));
    let read = |at: u64, into: &mut [u8]| match start.checked_add(at) {
        Some(at) => {
            bytes.read_at(at, into).map_err(|error| format!("has a description that cannot be read: {error}"))
        }
        None => Err("has a description beyond its end".into()),
    };
    read(offset, first)?;
    read(SECTOR_BYTES, rest)?;
    if crc32_from(CHECKSUM_SEED, &text) != u32_at(&header, 56) {
        return Err("has a description that does not match its checksum".into());
    }
    let whole = text::parse(&text).ok_or("has a description that cannot be parsed")?;
    Ok(whole.into_sections().collect())
}

/// Returns the ranges of a logical volume on the disk, and the problem with them if there is one.
fn pieces(
    group: &LvmSection,
    volume: &LvmSection,
    members: &[GroupMember<'_>],
) -> Result<(Vec<Range<u64>>, Option<String>), String> {
    let number =
        |section: &LvmSection, name: &str| section.number(name).and_then(|number| u64::try_from(number).ok());
    let extent_bytes = number(group, "extent_size").unwrap_or(0).saturating_mul(SECTOR_BYTES);
    let mut segments: Vec<_> = volume.sections().filter(|(name, _)| name.starts_with("segment")).collect();
    segments.sort_by_key(|(_, segment)| segment.number("start_extent"));
    let mut pieces: Vec<Range<u64>> = Vec::new();
    let mut next_extent = 0;
    for (_, segment) in segments {
        let kind = segment.text("type").unwrap_or("unknown");
        let stripe_count = number(segment, "stripe_count").unwrap_or(1);
        if !["striped", "linear"].contains(&kind) || stripe_count != 1 {
            let kind = if stripe_count == 1 {
                kind.to_owned()
            } else {
                format!("{kind} over {stripe_count} stripes")
            };
            return Err(format!("is {kind}; only linear volumes are shown"));
        }
        let count = number(segment, "extent_count").unwrap_or(0);
        if number(segment, "start_extent") != Some(next_extent) || count == 0 {
            return Err("has segments that do not follow each other".into());
        }
        next_extent = next_extent.saturating_add(count);
        let place = segment
            .list("stripes")
            .and_then(|stripes| Some((stripes.first()?.text()?, stripes.get(1)?.number()?)));
        let (member, first) = place.ok_or("has a segment without a position")?;
        let first = u64::try_from(first).map_err(|_| "has a segment with a negative position")?;
        let described = group
            .section("physical_volumes")
            .and_then(|all| all.section(member))
            .ok_or_else(|| format!("lies on {member}, which is not in its group"))?;
        let id = described.text("id").unwrap_or_default().replace('-', "");
        let member = members
            .iter()
            .find(|known| known.id == id.as_bytes())
            .ok_or_else(|| format!("lies partly on {member}, which is not on this disk"))?;
        let from = number(described, "pe_start")
            .unwrap_or(0)
            .saturating_mul(SECTOR_BYTES)
            .saturating_add(first.saturating_mul(extent_bytes));
        let to = from.saturating_add(count.saturating_mul(extent_bytes));
        let present = from.min(member.volume.size())..to.min(member.volume.size());
        let base = member.volume.start();
        if !present.is_empty() {
            pieces.push(base.saturating_add(present.start)..base.saturating_add(present.end));
        }
        if present.end < to {
            return Ok((pieces, Some("ends beyond the end of the disk".into())));
        }
    }
    if pieces.is_empty() { Err("is empty".into()) } else { Ok((pieces, None)) }
}
