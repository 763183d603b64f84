-- Approvals. One is open while the wait that asked for it is: the same transaction ends both. It is shown as canceled while
-- its job has ended, and open again when the job is retried; also if its step was forgotten and asked again.

-- name: add
-- Only if the wait was recorded with this approval: an earlier attempt may have asked already. A form with secret fields
-- makes the answer secret.
with asked as (
    update fairlead.job_steps s set secret = %(secret)s
    where s.job_id = %(job_id)s and s.branch = %(branch)s and s.position = %(position)s and s.status = 'waiting'
        and s.request ->> 'approval_id' = %(id)s::text
    returning s.*
)
insert into fairlead.approvals (
    id, tenant_id, job_id, branch, position, name, title, description, form, roles, requested_at, due_at, escalate,
    escalate_at)
select %(id)s, s.tenant_id, s.job_id, s.branch, s.position, s.name, %(title)s, %(description)s, %(form)s, %(roles)s,
    s.started_at, s.due_at, %(escalate)s, s.started_at + make_interval(secs => %(escalate_seconds)s)
from asked s
on conflict (id) do nothing;

-- name: answers
-- The next answers to forms.
select a.id, a.form, a.answer from fairlead.approvals a
where a.id > %(after)s and (%(tenant_id)s::uuid is null or a.tenant_id = %(tenant_id)s)
    and a.form is not null and a.answer is not null
order by a.id limit %(limit)s;

-- name: replace_answer
update fairlead.approvals a set answer = %(new)s::jsonb where a.id = %(id)s and a.answer = %(old)s::jsonb;

-- name: selected
select a.id, a.tenant_id, t.slug as tenant, a.job_id, coalesce(d.key, '') as definition_key, a.name, a.title, a.description,
    a.form, a.roles, <status> as status, a.requested_at, a.due_at, a.escalate, a.escalate_at, a.escalated_at, a.answered_at,
    a.answered_by, a.comment, a.answer as "values"
from fairlead.approvals a
join fairlead.tenants t on t.id = a.tenant_id
left join lateral (select j.status, j.definition_id from fairlead.job_records j where j.id = a.job_id limit 1) j on true
left join fairlead.job_definitions d on d.id = j.definition_id

-- name: status
-- The `limit` keeps the planner from reading all waiting steps once instead of one step for each approval.
case when a.status <> 'open' or (
    j.status <= 'running' and (
        select s.status = 'waiting' and s.request ->> 'approval_id' = a.id::text from fairlead.job_steps s
        where s.job_id = a.job_id and s.branch = a.branch and s.position = a.position limit 1))
    then a.status else 'canceled' end

-- name: by_ids
where a.id = any(%(ids)s::uuid[]) and (%(tenant_id)s::uuid is null or a.tenant_id = %(tenant_id)s) order by a.id desc limit %(limit)s

-- name: looked
-- The ids and statuses of at most `look` approvals before the given one, newest first.
select a.id, <status> as status
from (
    select * from fairlead.approvals a
    where <scope> and a.id < coalesce(%(before)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    order by <order> limit %(look)s) a
left join lateral (select j.status from fairlead.job_records j where j.id = a.job_id limit 1) j on true
order by a.id desc;

-- name: lock_wait
-- The wait that an answer ends, if it is still there. Steps are locked first, as in complete_waits.sql.
select s.job_id, s.branch, s.position from fairlead.approvals a
join fairlead.job_steps s on s.job_id = a.job_id and s.branch = a.branch and s.position = a.position
where a.id = %(id)s and s.status = 'waiting' and s.request ->> 'approval_id' = a.id::text
    and exists (select from fairlead.job_records j where j.id = a.job_id and j.status <= 'running')
for no key update of s;

-- name: answer
update fairlead.approvals
set status = %(status)s, answered_at = clock_timestamp(), answered_by = %(actor)s, comment = %(comment)s, answer = %(answer)s
where id = %(id)s and status = 'open'
returning answered_at;

-- name: take_overdue
-- Those of tenants that are being moved are escalated in their new cell.
update fairlead.approvals set escalated_at = clock_timestamp() where id = any(array(
    select a.id from fairlead.approvals a
    where a.escalate_at <= clock_timestamp() and a.escalated_at is null and a.status in ('open', 'expired')
        and exists (select from fairlead.tenants t where t.id = a.tenant_id and t.placement = 'here')
    order by a.escalate_at limit %(limit)s for update skip locked))
returning id;
