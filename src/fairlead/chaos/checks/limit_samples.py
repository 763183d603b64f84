"""Count the leases under each limit of a run: one statement, and so one moment."""

# Rows (name, number): the number of leases that the limit of this name counts.
SAMPLE = """
select 'tenant ' || t.slug, count(*)::integer
from fairlead.leases l join fairlead.tenants t on t.id = l.tenant_id
where t.max_running is not null group by t.slug
union all
select 'definition ' || d.key, count(*)::integer
from fairlead.leases l join fairlead.job_definitions d on d.id = l.definition_id
where d.max_running is not null group by d.key
union all
select 'definition ' || d.key || ' of tenant ' || t.slug, count(*)::integer
from fairlead.leases l
join fairlead.job_definitions d on d.id = l.definition_id join fairlead.tenants t on t.id = l.tenant_id
where d.max_running_per_tenant is not null group by d.key, t.slug
union all
select 'host ' || h.name, count(*)::integer
from fairlead.leases l join fairlead.hosts h on h.id = l.host_id group by h.name
"""
