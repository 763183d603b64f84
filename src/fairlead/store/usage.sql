-- What was done, out of the flows in counts. Minutes are kept for about a day; what is older is one level, no flow.

-- name: flows
select d.key as definition_key, date_trunc(%(by)s, c.minute, 'UTC') as starts_at,
    sum(c.succeeded)::bigint as succeeded, sum(c.failed)::bigint as failed,
    sum(c.dead_letter)::bigint as dead_letter, sum(c.canceled)::bigint as canceled
from fairlead.counts c join fairlead.job_definitions d on d.id = c.definition_id
where (%(tenant_id)s::uuid is null or c.tenant_id = %(tenant_id)s)
    and c.minute >= date_trunc('hour', clock_timestamp() - interval '24 hours', 'UTC')
group by 1, 2
having sum(c.succeeded) <> 0 or sum(c.failed) <> 0 or sum(c.dead_letter) <> 0 or sum(c.canceled) <> 0
order by 2 desc, 1;
