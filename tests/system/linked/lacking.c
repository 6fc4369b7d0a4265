/* SPDX-License-Identifier: Apache-2.0 */
/* Of what twill takes from libfabric all but one function: a library of another version. None is
 * ever called. */
void fi_getinfo(void);
void fi_freeinfo(void);
void fi_fabric(void);
void fi_strerror(void);

void fi_getinfo(void)
{
}
void fi_freeinfo(void)
{
}
void fi_fabric(void)
{
}
void fi_strerror(void)
{
}
